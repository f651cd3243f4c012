"""What a hub does without being asked, so that what can be pulled stays in step."""
