"""Evidence of alarms and judged takeovers: make, read, pack, sign and recompute it.

Three mechanisms protect a document, from the weakest to the strongest:

- The digest detects alterations by someone who does not recompute the digest.
- The id, the beginning of the digest, is the file's name and part of the alert. It detects alterations by someone who
  cannot also rename the file and change the alert.
- A signature (`monitor.evidence.signing`) detects alterations by someone without the private key.

Without a key, `contradictions` and then `derive_again` find fields that do not follow from the other fields. Some
fields follow from no other field, so an unsigned document cannot prove them; docs/security.md lists these fields.
"""
