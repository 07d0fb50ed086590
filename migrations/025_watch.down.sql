alter table turnkeeper.schedules drop column paused_reason;
alter table turnkeeper.worker_heartbeat drop column roles;
