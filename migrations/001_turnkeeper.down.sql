drop table turnkeeper.spend_reservations, turnkeeper.spend, turnkeeper.notes, turnkeeper.worker_heartbeat,
    turnkeeper.schedules, turnkeeper.turn_events, turnkeeper.outputs, turnkeeper.call_starts, turnkeeper.calls,
    turnkeeper.rounds, turnkeeper.replies, turnkeeper.turns, turnkeeper.lease_log, turnkeeper.leases,
    turnkeeper.messages, turnkeeper.agents, turnkeeper.definitions, turnkeeper.settings;
