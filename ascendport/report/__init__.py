"""Shows results: facts as plain data; tables, JSON and JUnit made from them; one printer."""
