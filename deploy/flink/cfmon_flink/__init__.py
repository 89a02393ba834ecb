"""The monitor as a job of Apache Flink, for fleets that one machine cannot monitor."""
