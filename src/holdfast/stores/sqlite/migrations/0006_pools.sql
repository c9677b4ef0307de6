-- How often a pool was changed is the highest count among its memories, which an index knows: to keep it beside them costs
-- every memory another page. No count comes twice. `holdfast_checksum` is ours, for as long as a migration lasts.

DROP INDEX holdfast_memories_changed;
CREATE UNIQUE INDEX holdfast_memories_changed ON holdfast_memories (pid, changed);
ALTER TABLE holdfast_pools DROP COLUMN changes;
UPDATE holdfast_pools SET checksum = holdfast_checksum(pid, workspace, pool);
