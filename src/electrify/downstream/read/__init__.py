"""Files of tasks -> examples. Every complaint names the file and the line (counted from 1)."""
