"""Writes the results of a batch as a table: a row for each document, a column for each field."""

import csv
import json
from pathlib import Path

RESULTS, SCHEMA, TABLE = Path("results.jsonl"), Path("invoice.schema.json"), Path("invoices.csv")

fields = list(json.loads(SCHEMA.read_text("utf-8"))["properties"])
with RESULTS.open(encoding="utf-8") as lines, TABLE.open("w", encoding="utf-8", newline="") as file:
    table = csv.DictWriter(file, ["id", *fields, "error"])
    table.writeheader()
    for line in map(json.loads, lines):
        error = line["error"]["message"] if line["error"] else ""
        table.writerow({"id": line["id"], **(line["result"] or {}), "error": error})
