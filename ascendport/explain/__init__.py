"""What one case of a port does on the simulator, told by the lines of its kernel."""
