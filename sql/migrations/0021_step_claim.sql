-- Under which claim a step was kept: one that two claims have done is an error for the later one. NULL = kept before this was noted.
ALTER TABLE messages.step ADD COLUMN claim_id bigint;
