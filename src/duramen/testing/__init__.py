"""What tests of duramen, and of programs built on it, need."""
