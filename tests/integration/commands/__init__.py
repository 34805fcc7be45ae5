"""What a person types: commands, their exit codes and output, and the tutorial."""
