"""What somebody may do to the embedded bus that docllm itself never does."""

from docllm.producer.bus.embedded.file import BusFile
from docllm.producer.bus.embedded.log import first_place


def delete_topic(file: BusFile, topic: str) -> None:
    """Delete a topic, its records and every group's position in it."""
    with file.write() as db:
        ids = [
            row[0]
            for row in db.execute(
                "SELECT p.id FROM partition p JOIN topic t USING (topic_id) WHERE t.name=?",
                (topic,),
            )
        ]
        for partition_id in ids:
            db.execute(
                "DELETE FROM record WHERE place BETWEEN ? AND ?",
                (first_place(partition_id), first_place(partition_id + 1) - 1),
            )
            db.execute("DELETE FROM ownership WHERE partition_id=?", (partition_id,))
            db.execute("DELETE FROM committed WHERE partition_id=?", (partition_id,))
            db.execute("DELETE FROM partition WHERE id=?", (partition_id,))
        db.execute("DELETE FROM topic WHERE name=?", (topic,))
