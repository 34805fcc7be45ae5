"""What several folders of these tests share. No test is here."""
