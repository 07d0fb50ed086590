-- What operators see: which roles a process has, and why a schedule is paused.
-- Oldest program: 2
-- Locks: worker_heartbeat and schedules, for a moment: columns are added without reading a row.

-- A process without the role worker takes no turns and is not draining. Empty: an older release wrote the row.
alter table turnkeeper.worker_heartbeat add column roles text[] not null default '{}';
-- Why somebody paused the schedule. Null: it is not paused, or nobody said.
alter table turnkeeper.schedules add column paused_reason text;
