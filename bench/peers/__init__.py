"""Other durable execution systems doing the same trivial steps, each in a process of the peers' own environment."""
