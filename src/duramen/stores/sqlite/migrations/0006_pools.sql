-- How often an audience was changed is the highest count among its memories, which an index knows: to keep it beside them costs
-- every memory another page. No count comes twice. `duramen_checksum` is ours, for as long as a migration lasts.

DROP INDEX duramen_memories_changed;
CREATE UNIQUE INDEX duramen_memories_changed ON duramen_memories (pid, changed);
ALTER TABLE duramen_audiences DROP COLUMN changes;
UPDATE duramen_audiences SET checksum = duramen_checksum(pid, workspace, audience);
