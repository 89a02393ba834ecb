"""Evidence of alarms and judged takeovers: make, read, pack, sign and recompute it.

Three mechanisms protect a document, each against a stronger forger:

- its digest detects alterations by someone who does not recompute the digest;
- its id, the beginning of that digest, is the file's name and part of the alert. It detects alterations by someone who
  cannot also rename the file and change the alert;
- a signature (`monitor.evidence.signing`) detects alterations by someone without the private key.

Without a key, `contradictions` and then `derive_again` find fields that do not follow from the other fields.
docs/security.md lists the fields that follow from no other field, which an unsigned document therefore cannot prove.
"""
