"""Documents by URI and results in files and stores, from the line to the export."""
