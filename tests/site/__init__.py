"""The built site, shown by Chromium. `make pages` builds it and runs these tests."""
