"""Steps: declaration, execution, doubt, failures. Start in definitions.py, then step_runner.py."""
