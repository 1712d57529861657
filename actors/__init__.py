"""What to do: pure behaviours, one shell around them, and the ports to the world."""
