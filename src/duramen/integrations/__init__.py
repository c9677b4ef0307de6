"""Adapters to the agent frameworks that people already use."""
