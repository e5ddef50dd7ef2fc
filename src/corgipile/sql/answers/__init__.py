"""What becomes of answers: tables for people, CSV and JSON for programs, HTML for notebooks."""
