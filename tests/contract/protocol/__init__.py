"""The protocol of claims, settles and orders as a whole: walks, schedules and planted bugs."""
