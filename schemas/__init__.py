"""What both programs agree on. Imports nothing of producer or agent."""
