"""Starting, claiming and executing runs. Start in engine.py, then execution.py."""
