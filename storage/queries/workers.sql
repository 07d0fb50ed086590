-- name: Beat :exec
insert into turnkeeper.worker_heartbeat (worker_id, host, pid, version, slots, takeover_after, roles, refused)
values (@worker_id, @host, @pid, @version, @slots, @takeover_after, @roles, @refused::jsonb)
on conflict (worker_id) do update set beat_at = clock_timestamp(), slots = excluded.slots, refused = excluded.refused;

-- name: StopBeating :exec
update turnkeeper.worker_heartbeat set stopped_at = clock_timestamp(), slots = 0, beat_at = clock_timestamp()
where worker_id = @worker_id;

-- name: ForgetWorkers :exec
delete from turnkeeper.worker_heartbeat h
where coalesce(stopped_at, beat_at) < clock_timestamp() - interval '1 day'
  and not exists (select from turnkeeper.leases l join turnkeeper.turns t on t.id = l.turn_id
      where l.grant_id is not null and t.worker_id = h.worker_id);

-- name: ListWorkers :many
select worker_id, host, pid, version, slots, takeover_after, started_at, beat_at, stopped_at, roles,
    refused::text as refused,
    (extract(epoch from greatest(clock_timestamp() - beat_at, interval '0')) * 1000)::bigint as silent_ms
from turnkeeper.worker_heartbeat
where stopped_at is null or stopped_at > clock_timestamp() - interval '1 hour'
order by started_at;
