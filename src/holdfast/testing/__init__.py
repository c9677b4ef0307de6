"""What tests of holdfast, and of programs built on it, need."""
