"""The command line. Start reading at `app.py`: it declares the commands, which import what they run."""
