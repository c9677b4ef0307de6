"""What a turn leaves that is worth keeping: rules that find candidates, and a gate that says why not."""
