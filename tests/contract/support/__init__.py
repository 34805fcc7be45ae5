"""What several folders of these suites share. No test is here."""
