"""What rewake is measured beside: each a script that imports nothing of ours, run in an environment of its own."""
