"""Hidden states and policies that remember: exact answers by the joint chain of what was and what would have been."""
