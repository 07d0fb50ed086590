-- The rows that every statement in this folder finds. No two ids, names, numbers and times of different things are equal. at('-9 min')
-- is nine minutes before the world began, u(7) a UUID. Triggers do not run.

insert into turnkeeper.definitions (hash, content) values
    (repeat('a', 64), 'You are clerk.'), (repeat('b', 64), 'You are desk.'), (repeat('c', 64), 'You are scout.'), (repeat('d', 64), 'You are old.'),
    (repeat('e', 64), 'You are mover.');
insert into turnkeeper.agents (name, definition_hash, description, models, give_up_after, max_running, day_tokens, day_calls, levels, holds_below,
    lane_per_conversation, lanes_changed_at, lanes_moved_at, retired_at, updated_at) values
    ('clerk', repeat('a', 64), 'Answers letters.', '{p/a,p/b}', '2 hours', 7, 1000, 50, '{"low": {"models": ["p/z", "p/y"], "min_priority": 5, "no_schedules": true}, "critical": {"min_priority": 90}}', null,
        false, null, null, null, at('-901 min')),
    ('desk', repeat('b', 64), 'Sits at the desk.', '{p/b}', null, null, 0, 0, '{}', null, true, null, null, null, at('-902 min')),
    ('scout', repeat('c', 64), 'Looks around.', '{p/c}', '3 hours', 5, 0, 70, '{}', null, true, null, null, null, at('-903 min')),
    ('old', repeat('d', 64), 'Is retired.', '{p/a}', null, null, 0, 0, '{}', null, false, null, null, at('-800 min'), at('-904 min')),
    ('mover', repeat('e', 64), 'Has new lanes.', '{p/a}', null, null, 0, 0, '{}', null, true, at('-50 min'), at('-49 min'), null, at('-905 min'));
insert into turnkeeper.notes (agent, user_name, conversation, name, content, updated_at) values
    ('clerk', 'ann', '', 'todo', 'Ann wants tea.', at('-701 min')), ('clerk', 'bob', '', 'todo', 'Bob wants milk, please.', at('-702 min')),
    ('clerk', 'ann', '', 'also', 'Nothing.', at('-703 min')), ('clerk', '', 'c1', 'todo', 'In the conversation.', at('-704 min')),
    ('desk', 'ann', '', 'todo', 'Another agent''s.', at('-705 min'));
insert into turnkeeper.schedules (agent, name, cron, cron_override, time_zone, conversation, message, active, paused_at, paused_reason, next_due, last_slot,
    last_error, skipped_slot, skipped_why, skipped) values
    ('clerk', 'daily', '0 9 * * *', null, 'Europe/Berlin', 'sched', 'Good morning.', true, null, null, at('-2 min'), at('-1442 min'), null, null, null, 0),
    ('desk', 'hourly', '0 * * * *', '30 * * * *', 'UTC', 'clock', 'It strikes.', true, null, null, at('-4 min'), at('-64 min'), null, at('-34 min'), 'level low', 2),
    ('desk', 'paused', '1 1 * * *', null, 'Asia/Tokyo', 'night', 'Sleep.', true, at('-600 min'), 'holidays', at('-601 min'), at('-602 min'), null, null, null, 0),
    ('desk', 'broken', 'x', null, 'UTC', 'none', 'Never.', false, null, null, null, null, 'bad cron', null, null, 0),
    ('desk', 'ended', '2 2 * * *', null, 'UTC', 'none', 'It was.', false, null, null, null, at('-603 min'), null, null, null, 0),
    ('desk', 'later', '3 3 * * *', null, 'UTC', 'later', 'Not yet.', true, null, null, at('33 min'), null, null, null, null, 0),
    ('old', 'gone', '4 4 * * *', null, 'UTC', 'gone', 'The agent is retired.', true, null, null, at('-5 min'), null, null, null, null, 0);

insert into turnkeeper.messages (id, agent, user_name, conversation, lane, held, body, idempotency_key, priority, trigger, schedule, slot, state, in_queue, attempts, faults,
    failing_since, failed_for, failing_after, due_at, queue_rank, accepted_at, closed_at, turn_id, last_error, trace_parent, sent_by, first_sha256, dropped_at)
    overriding system value values
    (101, 'clerk', 'ann', 'c1', 'clerk', false, 'Please run.', 'key-101', 0, 'message', null, null, 'running', true, 1, 2,
        at('-13 min'), '4 min', at('-14 min'), at('-101 min'), null, at('-100 min'), null, 201, null, 'trace-101', 'token:701', null, null),
    (102, 'desk', 'bob', 'd1', 'desk@bob/d1', false, 'Ask a person.', 'key-102', 3, 'message', null, null, 'running', false, 1, 0,
        null, '0', null, at('-103 min'), at('-102 min'), at('-98 min'), null, 202, null, null, 'token:702', null, null),
    (103, 'clerk', 'bob', 'c2', 'clerk', false, 'Ask, and let others pass.', null, 0, 'message', null, null, 'running', false, 1, 0,
        null, '0', null, at('-105 min'), null, at('-96 min'), null, 203, null, null, 'role:app', null, null),
    (104, 'desk', 'ann', 'd2', 'desk@ann/d2', false, 'Take your time.', null, 0, 'message', null, null, 'running', false, 1, 0,
        null, '0', null, at('-107 min'), null, at('-94 min'), null, 204, null, 'trace-104', 'role:app', null, null),
    (105, 'desk', 'ann', 'd3', 'desk@ann/d3', false, 'Spend much.', null, 0, 'message', null, null, 'running', false, 2, 1,
        null, '5 min', at('31 min'), at('-109 min'), null, at('-92 min'), null, 205, null, null, 'role:app', null, null),
    (106, 'scout', 'cleo', 'turn-207-round-1-tool-1', 'scout@cleo/turn-207-round-1-tool-1', false, 'Snapshot there.', null, 4, 'message', null, null, 'running', true, 1, 0,
        null, '0', null, at('-112 min'), at('-111 min'), at('-90 min'), null, 206, null, 'trace-106', 'turn:207', null, null),
    (107, 'desk', 'cleo', 'd4', 'desk@cleo/d4', false, 'Ask the scout.', null, 4, 'message', null, null, 'running', false, 1, 0,
        null, '0', null, at('-113 min'), null, at('-110 min'), null, 207, null, 'trace-107', 'token:701', null, null),
    (108, 'clerk', 'ann', 'c1', 'clerk', false, 'What is new about tea?', 'key-108', 0, 'message', null, null, 'succeeded', true, 1, 0,
        null, '0', null, at('-203 min'), null, at('-202 min'), at('-180 min'), 208, null, 'trace-108', 'token:701', null, null),
    (109, 'clerk', 'bob', 'c2', 'clerk', false, 'It will fail.', 'key-109', 6, 'message', null, null, 'failed', true, 2, 1,
        null, '6 min', null, at('-205 min'), at('-204 min'), at('-201 min'), at('-170 min'), 210, 'it broke', 'trace-109', 'role:app', '\x01', null),
    (110, 'desk', '', 'd5', 'desk/d5', false, 'It was cancelled over tea.', null, 0, 'message', null, null, 'cancelled', true, 1, 0,
        null, '0', null, at('-207 min'), null, at('-200 min'), at('-160 min'), 211, null, null, 'role:app', null, null),
    (111, 'clerk', 'ann', 'c3', 'clerk', false, 'I am behind one that runs.', 'key-111', 0, 'message', null, null, 'waiting', true, 0, 0,
        null, '0', null, at('-22 min'), null, at('-21 min'), null, null, null, 'trace-111', 'token:701', null, null),
    (112, 'clerk', 'bob', 'c2', 'clerk#203', true, 'I am held with bob''s turn.', null, 0, 'message', null, null, 'waiting', true, 0, 0,
        null, '0', null, at('-24 min'), null, at('-23 min'), null, null, null, null, 'role:app', null, null),
    (113, 'desk', 'ann', 'd6', 'desk@ann/d6', false, 'I am ready for tea.', null, 0, 'message', null, null, 'waiting', true, 0, 0,
        null, '0', null, at('-26 min'), null, at('-25 min'), null, null, null, null, 'role:app', null, null),
    (114, 'desk', 'ann', 'd7', 'desk@ann/d7', false, 'I am not due.', null, 0, 'message', null, null, 'waiting', true, 0, 0,
        null, '0', null, at('57 min'), null, at('-27 min'), null, null, null, null, 'token:702', null, null),
    (115, 'desk', 'bob', 'd8', 'desk@bob/d8', false, 'I am urgent, and failed before.', null, 8, 'message', null, null, 'waiting', true, 1, 0,
        at('-30 min'), '7 min', null, at('-29 min'), at('-15 min'), at('-28 min'), null, 212, 'the model was away', null, 'role:app', null, null),
    (116, 'desk', 'bob', 'd9', 'desk@bob/d9', false, 'I was dropped.', null, 0, 'message', null, null, 'waiting', true, 0, 0,
        null, '0', null, at('-32 min'), null, at('-31 min'), null, null, null, null, 'role:app', null, at('-19 min')),
    (117, 'mover', '', 'm1', 'mover', false, 'I am in the old lane.', null, 0, 'message', null, null, 'waiting', true, 0, 0,
        null, '0', null, at('-36 min'), null, at('-35 min'), null, null, null, null, 'role:app', null, null),
    (118, 'old', '', 'o1', 'old', false, 'My agent is retired.', null, 0, 'message', null, null, 'waiting', true, 0, 0,
        null, '0', null, at('-38 min'), null, at('-37 min'), null, null, null, null, 'role:app', null, null),
    (119, 'clerk', '', 'sched', 'clerk', false, 'Good morning.', null, 0, 'schedule', 'daily', at('-1442 min'), 'succeeded', true, 1, 0,
        null, '0', null, at('-1442 min'), null, at('-1441 min'), at('-1430 min'), 213, null, null, 'schedule:daily', null, null),
    (120, 'clerk', '', 'sched', 'clerk', false, 'Good morning!', null, 0, 'schedule', 'daily', at('-3 min'), 'waiting', true, 0, 0,
        null, '0', null, at('-3 min'), at('-1 min'), at('-2 min'), null, null, null, null, 'schedule:daily', null, null);
insert into turnkeeper.retries (message_id, retried_as, asked_at) values (109, 115, at('-28 min'));
insert into turnkeeper.responses (message_id, previous_id, background, drafts, metadata, instructions, max_output_tokens, preface, request_sha256, history_sha256) values
    (101, 108, true, false, '{"k": "v101"}', 'Be brief.', 301, 11, '\x0101', '\xa1'),
    (108, null, false, true, '{"k": "v108"}', null, null, 7, '\x0108', '\xa8'),
    (111, 101, true, true, '{"k": "v111"}', 'Be long.', 302, 5, '\x0111', '\xa3');
insert into turnkeeper.api_conversations (id, agent, user_name, sent_by, metadata, items, created_at, used_at) values
    ('conv-new', '', 'ann', 'token:701', '{"who": "ann"}', '[{"say": "hello"}]', at('-61 min'), null),
    ('conv-any', '', '', 'token:702', '{"who": "bob"}', '[{"say": "hi"}]', at('-62 min'), null),
    ('c1', 'clerk', 'ann', 'token:701', '{"of": "c1"}', '[]', at('-210 min'), at('-202 min'));

insert into turnkeeper.leases (lane, agent, token, grant_id, turn_id, granted_at, lease_until, failures, not_before, waits_for) values
    ('clerk', 'clerk', 21, u(201), 201, at('-12 min'), at('18 min'), 1, null, null),
    ('scout@cleo/turn-207-round-1-tool-1', 'scout', 26, u(206), 206, at('-16 min'), at('17 min'), 0, null, null),
    ('desk@bob/d1', 'desk', 22, null, null, null, null, 0, null, null),
    ('desk@ann/d2', 'desk', 24, null, null, null, null, 0, null, null),
    ('desk@ann/d3', 'desk', 25, null, null, null, null, 0, null, null),
    ('desk@cleo/d4', 'desk', 27, null, null, null, null, 0, null, null),
    ('desk@bob/d8', 'desk', 28, null, null, null, null, 3, at('1 min'), '{p/b,p/q}'),
    ('desk/d5', 'desk', 30, null, null, null, null, 2, null, null),
    ('mover', 'mover', 31, null, null, null, null, 0, null, null);
insert into turnkeeper.ended_grants (lane, token, grant_id, turn_id, job_id, worker_id, granted_at, lease_until, ended_at, outcome) values
    ('desk@bob/d1', 22, u(1202), 202, 502, 'w1', at('-89 min'), at('-59 min'), at('-88 min'), 'waiting'),
    ('clerk', 19, u(1203), 203, 503, 'w2', at('-87 min'), at('-57 min'), at('-86 min'), 'waiting'),
    ('desk@ann/d2', 24, u(1204), 204, 504, 'w1', at('-85 min'), at('-55 min'), at('-84 min'), 'waiting'),
    ('desk@ann/d3', 23, u(1205), 205, 505, 'w4', at('-83 min'), at('-53 min'), at('-82 min'), 'handed_back'),
    ('desk@ann/d3', 25, u(1215), 205, 515, null, at('-81 min'), at('-51 min'), at('-80 min'), 'deferred'),
    ('desk@cleo/d4', 27, u(1207), 207, 507, 'w2', at('-79 min'), at('-47 min'), at('-78 min'), 'waiting'),
    ('clerk', 15, u(1208), 208, 508, 'w1', at('-190 min'), at('-150 min'), at('-181 min'), 'finished'),
    ('clerk', 16, u(1209), 209, 509, 'w3', at('-179 min'), at('-149 min'), at('-178 min'), 'lost'),
    ('clerk', 17, u(1210), 210, 510, 'w3', at('-177 min'), at('-148 min'), at('-171 min'), 'finished'),
    ('desk/d5', 30, u(1211), 211, 511, 'w1', at('-176 min'), at('-147 min'), at('-161 min'), 'finished'),
    ('desk@bob/d8', 28, u(1212), 212, 512, 'w1', at('-18 min'), at('12 min'), at('-17 min'), 'finished'),
    ('clerk', 11, u(1213), 213, 513, 'w1', at('-1440 min'), at('-1410 min'), at('-1431 min'), 'finished');
insert into turnkeeper.worker_heartbeat (worker_id, host, pid, version, roles, slots, takeover_after, started_at, beat_at, stopped_at, refused) values
    ('w1', 'host-1', 1001, 'v1', '{worker,scheduler}', 4, '2 min', at('-301 min'), at('0'), null, '[{"n": 1}]'),
    ('w2', 'host-2', 1002, 'v2', '{worker}', 0, '3 min', at('-302 min'), at('-7 min'), at('-6 min'), '[]'),
    ('w3', 'host-3', 1003, 'v3', '{worker,api}', 6, '4 min', at('-303 min'), at('-20 min'), null, '[]'),
    ('w4', 'host-4', 1004, 'v4', '{worker}', 9, '0', at('-299 min'), at('0'), null, '[]');
insert into turnkeeper.model_health (model, down_since, until, failures, error_class, error, probe_grant, failed_message, changed_at) values
    ('p/a', null, null, 0, 'timeout', 'it was slow', null, 101, at('-40 min')),
    ('p/b', at('-9 min'), at('6 min'), 3, 'overloaded', 'it is full', u(206), 115, at('-8 min')),
    ('p/c', at('-10 min'), at('-1 min'), 2, 'auth', 'no key', null, 102, at('-11 min'));
insert into turnkeeper.suspects (message_id, model, failures, requests, failed_at, until, open, pairs, first_pair, last_pair) values
    (101, 'p/b', 2, 5, at('-13 min'), at('4 min'), true, 1, at('-33 min'), at('-18 min')),
    (115, 'p/b', 1, 3, at('-17 min'), at('5 min'), true, 0, null, null),
    (107, 'p/c', 4, 9, at('-70 min'), at('-68 min'), false, 2, at('-72 min'), at('-71 min'));

insert into turnkeeper.turns (id, message_id, attempt, agent, user_name, conversation, lane, home_lane, held, trigger, definition_hash, state, token, grant_id, job_id,
    worker_id, granted_at, lease_until, dispatches, losses, last_seq, inference_rounds, charged_rounds, executed_calls, input_tokens, output_tokens, cached_tokens,
    cache_write_tokens, reasoning_tokens, usage_estimated, created_at, due_at, waits_for, ended_at, stop_reason, error_class, error, inner_dialogue, events_expired_at, leases_expired_at) values
    (201, 101, 1, 'clerk', 'ann', 'c1', 'clerk', null, false, 'message', repeat('a', 64), 'running', 21, u(201), 501,
        'w1', at('-12 min'), at('18 min'), 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, false, at('-99 min'), null, null, null, null, null, null, null, null, null),
    (202, 102, 1, 'desk', 'bob', 'd1', 'desk@bob/d1', null, false, 'message', repeat('b', 64), 'waiting', 22, null, 502,
        'w1', at('-89 min'), at('-59 min'), 1, 0, 4, 1, 1, 0, 41, 42, 43, 6043, 44, true, at('-97 min'), null, null, null, null, null, null, null, null, null),
    (203, 103, 1, 'clerk', 'bob', 'c2', 'clerk#203', 'clerk', true, 'message', repeat('a', 64), 'waiting', 19, null, 503,
        'w2', at('-87 min'), at('-57 min'), 1, 0, 1, 1, 1, 0, 45, 46, 47, 6047, 48, false, at('-95 min'), null, null, null, null, null, null, null, null, null),
    (204, 104, 1, 'desk', 'ann', 'd2', 'desk@ann/d2', null, false, 'message', repeat('b', 64), 'waiting', 24, null, 504,
        'w1', at('-85 min'), at('-55 min'), 1, 0, 2, 1, 1, 2, 49, 50, 51, 6051, 52, false, at('-93 min'), null, null, null, null, null, null, null, null, null),
    (205, 105, 2, 'desk', 'ann', 'd3', 'desk@ann/d3', null, false, 'message', repeat('b', 64), 'queued', 25, null, 515,
        null, at('-81 min'), at('-51 min'), 2, 1, 3, 2, 1, 3, 53, 54, 55, 6055, 56, true, at('-91 min'), at('30 min'), null, null, null, 'budget', 'the day is spent', null, null, null),
    (206, 106, 1, 'scout', 'cleo', 'turn-207-round-1-tool-1', 'scout@cleo/turn-207-round-1-tool-1', null, false, 'message', repeat('c', 64), 'running', 26, u(206), 506,
        null, at('-16 min'), at('17 min'), 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, false, at('-77 min'), null, null, null, null, null, null, null, null, null),
    (207, 107, 1, 'desk', 'cleo', 'd4', 'desk@cleo/d4', null, false, 'message', repeat('b', 64), 'waiting', 27, null, 507,
        'w2', at('-79 min'), at('-47 min'), 1, 0, 2, 1, 1, 2, 57, 58, 59, 6059, 60, false, at('-76 min'), null, null, null, null, null, null, null, null, null),
    (208, 108, 1, 'clerk', 'ann', 'c1', 'clerk', null, false, 'message', repeat('a', 64), 'succeeded', 15, u(1208), 508,
        'w1', at('-190 min'), at('-150 min'), 1, 0, 5, 2, 2, 1, 61, 62, 63, 6063, 64, true, at('-195 min'), null, null, at('-181 min'), 'none', null, null, null, null, null),
    (209, 109, 1, 'clerk', 'bob', 'c2', 'clerk', null, false, 'message', repeat('a', 64), 'failed', 16, u(1209), 509,
        'w3', at('-179 min'), at('-149 min'), 1, 1, 1, 1, 0, 1, 65, 66, 67, 6067, 68, false, at('-194 min'), null, null, at('-178 min'), 'worker_lost', 'worker_lost', 'its worker was lost', null, null, null),
    (210, 109, 2, 'clerk', 'bob', 'c2', 'clerk', null, false, 'message', repeat('a', 64), 'failed', 17, u(1210), 510,
        'w3', at('-177 min'), at('-148 min'), 1, 2, 1, 1, 1, 0, 69, 70, 71, 6071, 72, false, at('-193 min'), null, null, at('-171 min'), 'inference_error', 'auth', 'no key', null, null, null),
    (211, 110, 1, 'desk', '', 'd5', 'desk/d5', null, false, 'message', repeat('b', 64), 'cancelled', 30, u(1211), 511,
        'w1', at('-176 min'), at('-147 min'), 1, 0, 2, 1, 1, 0, 73, 74, 75, 6075, 76, false, at('-192 min'), null, null, at('-161 min'), 'cancelled', null, null, null, null, null),
    (212, 115, 1, 'desk', 'bob', 'd8', 'desk@bob/d8', null, false, 'message', repeat('b', 64), 'failed', 28, u(1212), 512,
        'w1', at('-18 min'), at('12 min'), 1, 0, 1, 0, 0, 0, 77, 78, 79, 6079, 80, false, at('-20 min'), null, null, at('-17 min'), 'inference_error', 'overloaded', 'it is full', null, null, null),
    (213, 119, 1, 'clerk', '', 'sched', 'clerk', null, false, 'schedule', repeat('a', 64), 'succeeded', 11, u(1213), 513,
        'w1', at('-1440 min'), at('-1410 min'), 1, 0, 1, 1, 1, 0, 81, 82, 83, 6083, 84, false, at('-1439 min'), null, null, at('-1431 min'), 'none', null, null, 'It is a fine day.', null, null);
insert into turnkeeper.requested_ends (turn_id, how, reason, asked_at) values
    (206, 'finish', 'bob is in a hurry', at('-5 min')), (211, 'cancel', 'enough', at('-162 min'));

insert into turnkeeper.journal (turn_id, n, write_id, seq, last_seq, at, inference_rounds, charged_rounds, executed_calls, input_tokens, output_tokens, cached_tokens,
    cache_write_tokens, reasoning_tokens, usage_estimated, types, rounds, blocks, data, round, answer, calls, text, reasoning, raw, request, results) values
    (201, 1, u(2011), 1, 2, at('-11 min'), 1, 1, 0, 111, 112, 113, 6113, 114, false, '{turn_start,round_start}', '{0,1}', '{0,0}', '{"{\"a\":1}",""}',
        1, '{"version": 3, "charged": true, "provider": "p", "model": "a", "attempts": 2, "latency_ms": 1901, "finish_reason": "tool_calls", "input_tokens": 111, "output_tokens": 112, "cached_tokens": 113, "cache_write_tokens": 6113, "reasoning_tokens": 114, "usage_estimated": true}',
        '[{"ordinal": 1, "wire_id": "wire-1", "provider_id": "prov-1", "name": "pay", "arguments": "{\"sum\":1}", "raw_args": "raw 1", "args_hash": "hash-1", "effect": "once", "paging": true, "state": "planned"},
          {"ordinal": 2, "wire_id": "wire-2", "name": "read", "arguments": "{\"file\":2}", "effect": "none", "state": "planned"},
          {"ordinal": 3, "wire_id": "wire-3", "name": "mail", "arguments": "{\"to\":3}", "effect": "keyed", "state": "planned"},
          {"ordinal": 4, "wire_id": "wire-4", "name": "guess", "arguments": "{}", "effect": "none", "state": "denied", "shown": "denied: tool not found", "preview": "no such tool"}]',
        'I will pay.', 'They want it.', 'raw answer 201', '{"provider": "p", "model": "a", "summary": 31}', null),
    (201, 2, u(2012), 3, 3, at('-10 min'), 1, 1, 2, 121, 122, 123, 6123, 124, true, '{block_delta}', '{1}', '{2}', '{"{\"text\":\"paid\"}"}',
        null, null, null, null, null, null, null,
        '[{"round": 1, "ordinal": 1, "state": "succeeded", "shown": "paid 1", "preview": "paid one", "output_id": "out-201", "duration_ms": 1911, "input_tokens": 21, "output_tokens": 22, "cached_tokens": 23, "cache_write_tokens": 6023, "reasoning_tokens": 24, "usage_estimated": true}]'),
    (201, 3, u(2013), 4, 5, at('-9 min'), 1, 1, 2, 121, 122, 123, 6123, 124, true, '{round_start,block_start}', '{2,2}', '{0,1}', '{"","{\"kind\":\"text\"}"}', null, null, null, null, null, null, null, null),
    (201, 4, u(2014), 6, 7, at('-8 min'), 1, 1, 3, 121, 122, 123, 6123, 124, true, '{block_delta,notice}', '{2,2}', '{1,0}', '{"{\"text\":\"And now\"}","{\"waited_ms\":5}"}', null, null, null, null, null, null, null, null),
    (202, 1, u(2021), 1, 4, at('-88 min'), 1, 1, 0, 41, 42, 43, 6043, 44, true, '{turn_start,round_start,block_start,turn_waiting}', '{0,1,1,0}', '{0,0,1,0}', '{"","","{\"kind\":\"text\"}","{\"reasons\":[\"person\",\"calls\"]}"}',
        1, '{"version": 2, "charged": true, "provider": "p", "model": "b", "attempts": 1, "latency_ms": 1902, "finish_reason": "tool_calls", "input_tokens": 41, "output_tokens": 42, "cached_tokens": 3202, "cache_write_tokens": 3602, "reasoning_tokens": 3302}',
        '[{"ordinal": 1, "wire_id": "wire-5", "name": "wire", "arguments": "{\"euro\":5}", "effect": "once", "state": "planned"}]', 'May I?', '', 'raw answer 202', '{"provider": "p", "model": "b"}', null),
    (203, 1, u(2031), 1, 1, at('-86 min'), 1, 1, 0, 45, 46, 47, 6047, 48, false, '{turn_start}', '{0}', '{0}', '{""}',
        1, '{"version": 2, "charged": true, "provider": "p", "model": "a", "attempts": 33, "latency_ms": 1803, "finish_reason": "f3", "input_tokens": 3003, "output_tokens": 3103, "cached_tokens": 3203, "cache_write_tokens": 3603, "reasoning_tokens": 3303}', '[{"ordinal": 1, "wire_id": "wire-6", "name": "wire", "arguments": "{\"euro\":6}", "effect": "once", "state": "planned"}]', 'And I?', '', null, null, null),
    (204, 1, u(2041), 1, 2, at('-84 min'), 1, 1, 2, 49, 50, 51, 6051, 52, false, '{turn_start,round_start}', '{0,1}', '{0,0}', '{"",""}',
        1, '{"version": 2, "charged": true, "provider": "p", "model": "b", "attempts": 34, "latency_ms": 1804, "finish_reason": "f4", "input_tokens": 3004, "output_tokens": 3104, "cached_tokens": 3204, "cache_write_tokens": 3604, "reasoning_tokens": 3304}',
        '[{"ordinal": 1, "wire_id": "wire-7", "name": "slow", "arguments": "{\"n\":7}", "effect": "once", "state": "planned"},
          {"ordinal": 2, "wire_id": "wire-8", "name": "long", "arguments": "{\"n\":8}", "effect": "none", "state": "planned"},
          {"ordinal": 3, "wire_id": "wire-9", "name": "done", "arguments": "{\"n\":9}", "effect": "keyed", "state": "planned"}]', 'It takes time.', '', null, null,
        '[{"round": 1, "ordinal": 1, "state": "running", "shown": "handle 1", "preview": "it runs 1", "output_id": "out-2041"},
          {"round": 1, "ordinal": 2, "state": "running", "shown": "handle 2", "preview": "it runs 2", "output_id": "out-2042"},
          {"round": 1, "ordinal": 3, "state": "running", "shown": "handle 3", "preview": "it runs 3", "output_id": "out-2043"}]'),
    (205, 1, u(2051), 1, 3, at('-82 min'), 2, 1, 3, 53, 54, 55, 6055, 56, true, '{turn_start,round_start,round_rollback}', '{0,1,1}', '{0,0,0}', '{"","",""}', null, null, null, null, null, null, null, null),
    (206, 1, u(2061), 1, 1, at('-15 min'), 0, 0, 0, 0, 0, 0, 0, 0, false, '{turn_start}', '{0}', '{0}', '{""}', null, null, null, null, null, null, null, null),
    (207, 1, u(2071), 1, 2, at('-78 min'), 1, 1, 2, 57, 58, 59, 6059, 60, false, '{turn_start,round_start}', '{0,1}', '{0,0}', '{"",""}',
        1, '{"version": 2, "charged": true, "provider": "p", "model": "b", "attempts": 35, "latency_ms": 1805, "finish_reason": "f5", "input_tokens": 3005, "output_tokens": 3105, "cached_tokens": 3205, "cache_write_tokens": 3605, "reasoning_tokens": 3305}',
        '[{"ordinal": 1, "wire_id": "wire-10", "name": "scout", "arguments": "{\"n\":10}", "effect": "once", "state": "planned"},
          {"ordinal": 2, "wire_id": "wire-11", "name": "nobody", "arguments": "{\"n\":11}", "effect": "once", "state": "planned"},
          {"ordinal": 3, "wire_id": "wire-12", "name": "walk", "arguments": "{\"n\":12}", "effect": "once", "state": "planned"}]', 'The scout will look.', '', null, null,
        '[{"round": 1, "ordinal": 1, "state": "running", "shown": "scout 1", "preview": "scouts 1"}, {"round": 1, "ordinal": 2, "state": "running", "shown": "scout 2", "preview": "scouts 2"},
          {"round": 1, "ordinal": 3, "state": "running", "shown": "walks 3", "preview": "walks 3", "output_id": "out-2073"}]'),
    (208, 1, u(2081), 1, 3, at('-185 min'), 1, 1, 1, 31, 32, 33, 6033, 34, false, '{turn_start,round_start,block_delta}', '{0,1,1}', '{0,0,1}', '{"","","{\"text\":\"old\"}"}',
        1, '{"version": 2, "charged": true, "provider": "p", "model": "a", "attempts": 1, "latency_ms": 1903, "finish_reason": "tool_calls", "input_tokens": 31, "output_tokens": 3106, "cached_tokens": 3206, "cache_write_tokens": 3606, "reasoning_tokens": 3306}',
        '[{"ordinal": 1, "wire_id": "wire-13", "name": "search", "arguments": "{\"q\":13}", "effect": "none", "state": "succeeded", "shown": "found it", "preview": "found"}]', 'I look.', '', 'raw answer 208', '{"summary": 31}', null),
    (208, 2, u(2082), 4, 5, at('-182 min'), 2, 2, 1, 61, 62, 63, 6063, 64, true, '{round_start,turn_complete}', '{2,0}', '{0,0}', '{"","{\"end\":1}"}',
        2, '{"version": 2, "charged": true, "provider": "p", "model": "b", "finish_reason": "stop", "input_tokens": 30, "attempts": 37, "latency_ms": 1807, "output_tokens": 3107, "cached_tokens": 3207, "cache_write_tokens": 3607, "reasoning_tokens": 3307}', null, 'Nothing is new.', '', 'raw answer 208 2', null, null),
    (209, 1, u(2091), 1, 1, at('-178 min'), 1, 0, 1, 65, 66, 67, 6067, 68, false, '{turn_start}', '{0}', '{0}', '{""}',
        1, '{"version": 2, "charged": false, "provider": "p", "model": "a", "attempts": 38, "latency_ms": 1808, "finish_reason": "f8", "input_tokens": 3008, "output_tokens": 3108, "cached_tokens": 3208, "cache_write_tokens": 3608, "reasoning_tokens": 3308}', '[{"ordinal": 1, "wire_id": "wire-14", "name": "mail", "arguments": "{\"to\":14}", "effect": "keyed", "state": "planned"}]', 'I mail.', '', null, null,
        '[{"round": 1, "ordinal": 1, "state": "unknown", "shown": "outcome unknown", "preview": "unknown"}]'),
    (210, 1, u(2101), 1, 1, at('-172 min'), 1, 1, 0, 69, 70, 71, 6071, 72, false, '{turn_error}', '{0}', '{0}', '{"{\"end\":2}"}', 1, '{"version": 2, "charged": true, "provider": "p", "model": "c", "attempts": 39, "latency_ms": 1809, "finish_reason": "f9", "input_tokens": 3009, "output_tokens": 3109, "cached_tokens": 3209, "cache_write_tokens": 3609, "reasoning_tokens": 3309}', null, 'Not again.', '', null, null, null),
    (211, 1, u(2111), 1, 2, at('-162 min'), 1, 1, 0, 73, 74, 75, 6075, 76, false, '{turn_start,turn_error}', '{0,0}', '{0,0}', '{"",""}', 1, '{"version": 2, "charged": true, "provider": "p", "model": "b", "attempts": 40, "latency_ms": 1810, "finish_reason": "f10", "input_tokens": 3010, "output_tokens": 3110, "cached_tokens": 3210, "cache_write_tokens": 3610, "reasoning_tokens": 3310}', null, 'I began.', '', null, null, null),
    (213, 1, u(2131), 1, 1, at('-1431 min'), 1, 1, 0, 81, 82, 83, 6083, 84, false, '{turn_complete}', '{0}', '{0}', '{""}', 1, '{"version": 2, "charged": true, "provider": "p", "model": "a", "attempts": 41, "latency_ms": 1811, "finish_reason": "f11", "input_tokens": 3011, "output_tokens": 3111, "cached_tokens": 3211, "cache_write_tokens": 3611, "reasoning_tokens": 3311}', null, 'It is a fine day.', '', null, null, null);
insert into turnkeeper.call_starts (turn_id, round, ordinal, attempt, effect, n, token, nonce, worker_id, started_at, agent, name, args_hash, ask_id, run_hash, run_args) values
    (201, 1, 1, 1, 'once', 1, 21, 'nonce-1', 'w1', at('-11 min'), 'clerk', 'pay', 'hash-1e', 304, 'run-1', '{"sum":1.5}'),
    (201, 1, 3, 1, 'keyed', 3, 21, 'nonce-3', 'w1', at('-9 min'), 'clerk', 'mail', 'hash-3', null, null, null),
    (204, 1, 1, 1, 'once', 1, 24, 'nonce-7', 'w1', at('-84 min'), 'desk', 'slow', 'hash-7', 305, 'run-7', '{"n":7.5}'),
    (204, 1, 2, 1, 'none', 1, 24, 'nonce-8', 'w1', at('-84 min'), 'desk', 'long', 'hash-8', null, null, null),
    (204, 1, 3, 1, 'keyed', 1, 24, 'nonce-9', 'w1', at('-84 min'), 'desk', 'done', 'hash-9', null, null, null),
    (207, 1, 1, 1, 'once', 1, 27, 'nonce-10', 'w2', at('-78 min'), 'desk', 'scout', 'hash-10', null, null, null),
    (207, 1, 2, 1, 'once', 1, 27, 'nonce-11', 'w2', at('-78 min'), 'desk', 'nobody', 'hash-11', null, null, null),
    (207, 1, 3, 1, 'once', 1, 27, 'nonce-12', 'w2', at('-78 min'), 'desk', 'walk', 'hash-12', null, null, null),
    (209, 1, 1, 1, 'keyed', 1, 16, 'nonce-14', 'w3', at('-178 min'), 'clerk', 'mail', 'hash-3', null, null, null);
insert into turnkeeper.late_results (turn_id, round, ordinal, result, at) values (209, 1, 1, 'it was mailed', at('-175 min'));
insert into turnkeeper.failed_attempts (id, turn_id, round, attempt, provider, model, error_class, error, text, reasoning, latency_ms, input_tokens, output_tokens,
    cached_tokens, cache_write_tokens, reasoning_tokens, usage_estimated, ended_at) overriding system value values
    (801, 201, 1, 1, 'p', 'b', 'overloaded', 'it is full', 'half', 'hm', 1921, 11, 12, 13, 6013, 14, true, at('-12 min')),
    (802, 208, 2, 3, 'q', 'c', 'auth', 'no key', 'half of 208', 'hm 208', 1922, 15, 16, 17, 6017, 18, false, at('-184 min'));
insert into turnkeeper.request_parts (sha256, content) values (repeat('1', 64), 'part one'), (repeat('2', 64), 'part two');
insert into turnkeeper.summaries (agent, user_name, conversation, up_to, turn_id, content) values
    ('clerk', 'ann', 'c1', 31, 32, 'Ann likes tea.'), ('clerk', 'ann', 'c1', 33, 208, 'Ann still likes tea.'), ('clerk', 'bob', 'c2', 34, 209, 'Bob likes milk.');
insert into turnkeeper.spend (scope, period, tokens, calls, level) values
    ('agent:clerk', today(), 700, 16, 'normal'), ('agent:clerk', '2001-02-03', 999, 98, 'low'), ('turn:201', '', 71, 3, 'normal'), ('tree:207', '', 72, 4, 'normal'),
    ('turn:208', '', 73, 5, 'normal'), ('turn:207', '', 74, 6, 'normal'), ('agent:desk', today(), 75, 7, 'normal'), ('turn:206', '', 76, 8, 'normal'), ('agent:scout', today(), 77, 9, 'normal');
insert into turnkeeper.spend_reservations (id, turn_id, agent, root, period, tokens, settled_at, used) overriding system value values
    (901, 201, 'clerk', null, today(), 61, null, null), (902, 206, 'scout', 207, today(), 62, null, null), (903, 208, 'clerk', null, today(), 63, at('-183 min'), 64);
insert into turnkeeper.pinned_levels (agent, level, pinned_by, pinned_at, until, reason) values
    ('desk', 'low', 'ada', at('-45 min'), at('45 min'), 'a test'), ('old', 'critical', 'eve', at('-46 min'), at('-4 min'), 'it is over');

insert into turnkeeper.outputs (id, turn_id, round, ordinal, media_type, chunked, content, bytes, size_bytes, raw_bytes, chars, tokens, sha256, incomplete, description,
    retrieved, created_at, expired_at) values
    ('out-201', 201, 1, 1, 'text/plain', false, 'paid in full', null, 1201, 1202, 1203, 1204, 'sha-201', true, 'a receipt', 5, at('-10 min'), null),
    ('out-208', 208, 1, 1, 'text/html', true, '', null, 1208, 1209, 1210, 1211, 'sha-208', false, 'a page', 6, at('-184 min'), null),
    ('out-209', 209, 1, 1, 'image/png', false, null, '\x89', 1212, 1213, 1214, 1215, 'sha-209', false, 'an image', 7, at('-173 min'), null),
    ('out-210', 210, 1, 1, 'text/csv', false, '', null, 1216, 1217, 1218, 1219, 'sha-210', false, 'a table', 8, at('-174 min'), at('-66 min'));
insert into turnkeeper.output_chunks (output_id, first_char, content, bytes) values
    ('out-208', 0, 'abcdefghij', null), ('out-208', 10, 'klmnopqrst', null), ('draft-1', 0, 'drafted', null), ('draft-2', 0, null, '\x02');
insert into turnkeeper.output_drafts (output_id, turn_id, grant_id) values ('draft-1', 201, u(201)), ('draft-2', 205, u(1205));
insert into turnkeeper.extractions (source_sha256, query_sha256, model, prompt_version, turn_id, result, created_at) values
    ('src-1', 'query-1', 'p/a', 4, 208, '{"found": 1}', at('-186 min')), ('src-1', 'query-1', 'p/a', 5, 201, '{"found": 2}', at('-8 min')),
    ('src-2', 'query-2', 'p/b', 4, 209, '{"found": 3}', at('-187 min'));

insert into turnkeeper.awaited_calls (turn_id, round, ordinal, nonce, opened_at, arrived_at, state, preview, duration_ms, output_id, closed_at) values
    (204, 1, 1, 'nonce-7', at('-84 min'), null, null, '', null, null, null),
    (204, 1, 2, 'nonce-8', at('-83 min'), null, null, '', null, null, null),
    (204, 1, 3, 'nonce-9', at('-82 min'), at('-63 min'), 'failed', 'it failed', 1931, 'out-9', null),
    (207, 1, 1, 'nonce-10', at('-78 min'), null, null, '', null, null, null),
    (207, 1, 2, 'nonce-11', at('-77 min'), at('-74 min'), 'failed', 'the agent nobody: unknown_agent', 1932, null, null),
    (207, 1, 3, 'nonce-12', at('-76 min'), null, null, '', null, null, null);
insert into turnkeeper.detached_calls (turn_id, round, ordinal, attempt, time_limit, deadline, look_at, job_id, claim, worker_id, claimed_at, lost_at, losses, delivered, ended_at) values
    (204, 1, 1, 1, '41 min', at('-27 min'), at('-82 min'), 541, 'claim-7', 'w1', at('-68 min'), null, 3, false, null),
    (204, 1, 2, 1, '42 min', at('22 min'), at('-2 min'), 542, null, null, null, null, 1, false, null),
    (204, 1, 3, 2, '43 min', at('23 min'), at('-3 min'), 543, 'claim-9', 'w4', at('-65 min'), null, 0, true, at('-63 min')),
    (207, 1, 3, 1, '44 min', at('24 min'), at('3 min'), 544, 'claim-12', 'w3', at('-14 min'), null, 2, false, null);
insert into turnkeeper.agent_trees (root, max_depth, max_agents, tokens, calls) values (207, 3, 8, 5000, 55);
insert into turnkeeper.spawned_calls (turn_id, round, ordinal, message_id, agent, root, agents, spawned_at, deadline, failure, child, outcome, stop, ended_at, notified_at, dropped_at) values
    (207, 1, 1, 106, 'scout', 207, '{desk,scout}', at('-77 min'), at('26 min'), null, null, null, null, null, null, null),
    (207, 1, 2, null, 'nobody', 207, '{desk,nobody}', at('-75 min'), at('27 min'), 'unknown_agent', null, null, null, at('-75 min'), at('-74 min'), null);

insert into turnkeeper.asks (id, turn_id, round, ordinal, kind, n, state, tool, arguments, args_hash, rule, reason, schema, audience, hold, opened_at, expires_at, seen_at,
    closed_at, answered_by, channel, comment, answer, edited, edited_hash, resume, used_at) overriding system value values
    (301, 202, 1, 1, 'approve', 1, 'open', 'wire', '{"euro":5}', turnkeeper.args_hash('wire', '{"euro":5}'), 'rule-1', 'it is much', '{"type":"object"}', '{ann,bob}', true, at('-88 min'), at('32 min'), null, null, null, null, null, null, null, null, null, null),
    (302, 203, 1, 1, 'question', 2, 'open', 'wire', '{"euro":6}', turnkeeper.args_hash('wire', '{"euro":6}'), 'rule-2', 'who is it for', null, '{}', true, at('-86 min'), at('34 min'), null, null, null, null, null, null, null, null, null, null),
    (303, 208, 1, 1, 'input', 1, 'answered', 'search', '{"q":13}', 'args-303', 'rule-3', 'say more', '{"type":"string"}', '{bob}', false, at('-188 min'), at('-120 min'), at('-186 min'), at('-187 min'), 'bob', 'http', 'so be it', '"tea"', null, null, 'resume-303', at('-185 min')),
    (304, 201, 1, 1, 'approve', 1, 'approved', 'pay', '{"sum":1}', 'args-304', 'rule-4', 'it costs', null, '{}', false, at('-12 min'), at('40 min'), null, at('-11 min'), 'ann', 'sql', 'fine', null, '{"sum":1.5}', 'run-1', null, null),
    (305, 204, 1, 1, 'approve', 1, 'denied', 'slow', '{"n":7}', 'args-305', 'rule-5', 'it is slow', null, '{}', false, at('-85 min'), at('41 min'), at('-83 min'), at('-84 min'), 'bob', 'mcp', 'no', null, null, null, null, null),
    (306, 201, 1, 3, 'input', 1, 'expired', 'mail', '{"to":3}', 'args-306', 'rule-6', 'which address', null, '{}', true, at('-11 min'), at('-10 min'), null, at('-9 min'), null, null, null, null, null, null, 'resume-306', null);
insert into turnkeeper.call_gates (turn_id, round, ordinal) values (202, 1, 1), (201, 1, 1), (208, 1, 1);
insert into turnkeeper.replies (id, message_id, turn_id, parent_turn_id, agent, user_name, conversation, outcome, stop_reason, error_class, body, calls, labels, sent_by, created_at)
    overriding system value values
    (401, 108, 208, null, 'clerk', 'ann', 'c1', 'succeeded', 'none', null, 'Nothing is new.', '[{"n": 401}]', '{private}', 'token:701', at('-180 min')),
    (402, 109, 210, null, 'clerk', 'bob', 'c2', 'failed', 'inference_error', 'auth', 'Sorry, no key.', '[{"n": 402}]', '{}', 'role:app', at('-170 min')),
    (403, 110, 211, 207, 'desk', '', 'd5', 'cancelled', 'cancelled', null, 'This turn was cancelled.', '[]', '{}', 'role:app', at('-160 min'));
insert into turnkeeper.webhooks (name, origin, agents, sub_agents, asks, added_at, seen_at, not_before, paused_at, paused_reason, succeeded_at, failed_at, last_error) values
    ('hook', 'https://one.example', '{clerk}', false, true, at('-401 min'), at('-42 min'), null, null, null, at('-151 min'), at('-152 min'), 'was away'),
    ('rest', 'https://two.example', null, true, false, at('-402 min'), at('-43 min'), at('2 min'), null, null, null, at('-153 min'), '503'),
    ('stop', 'https://three.example', '{desk}', false, false, at('-403 min'), at('-44 min'), null, at('-146 min'), 'by hand', null, null, null);
insert into turnkeeper.webhook_deliveries (id, reply_id, ask_id, webhook, state, attempts, due_at, claim, worker_id, first_at, last_at, status, error, duration_ms, redelivered, created_at)
    overriding system value values
    (601, 401, null, 'hook', 'pending', 2, at('-156 min'), null, 'w1', at('-158 min'), at('-157 min'), 500, 'status 500', 1941, 1, at('-180 min')),
    (602, 402, null, 'hook', 'pending', 1, at('7 min'), 'claim-602', 'w4', at('-154 min'), null, null, null, null, 0, at('-170 min')),
    (603, 403, null, 'rest', 'dead', 9, null, null, 'w2', at('-144 min'), at('-143 min'), 404, 'status 404', 1943, 2, at('-160 min')),
    (604, null, 301, 'hook', 'pending', 0, at('-48 min'), null, null, null, null, null, null, null, 0, at('-88 min')),
    (605, 401, null, 'stop', 'pending', 4, at('-145 min'), null, 'w3', at('-142 min'), at('-141 min'), 502, 'status 502', 1944, 0, at('-179 min')),
    (606, null, 304, 'hook', 'pending', 3, at('-47 min'), null, null, null, null, null, null, null, 0, at('-87 min')),
    (607, 403, null, 'lost', 'pending', 5, at('11 min'), null, null, null, null, null, null, null, 0, at('-159 min')),
    (608, 402, null, 'stop', 'delivered', 1, null, null, 'w1', at('-139 min'), at('-138 min'), 200, null, 1945, 0, at('-169 min'));

insert into turnkeeper.labels (kind, id, round, ordinal, agent, user_name, conversation, name, label, source, added_at) values
    ('call', 201, 1, 1, '', '', '', '', 'untrusted', 'pay', at('-10 min')), ('turn', 201, 1, 0, '', '', '', '', 'untrusted', 'pay of 201', at('-9 min')),
    ('turn', 208, 0, 0, '', '', '', '', 'private', 'search of 208', at('-184 min')), ('message', 109, 0, 0, '', '', '', '', 'untrusted', 'a letter', at('-201 min')),
    ('reply', 108, 0, 0, '', '', '', '', 'private', 'search', at('-180 min')), ('summary', 33, 0, 0, '', '', '', '', 'private', 'search then', at('-189 min')),
    ('message', 101, 0, 0, '', '', '', '', 'untrusted', 'a page', at('-99 min')), ('message', 101, 0, 0, '', '', '', '', 'private', 'a form', at('-100 min')),
    ('reply', 108, 0, 0, '', '', '', '', 'untrusted', 'the web', at('-181 min')),
    ('note', 0, 0, 0, 'clerk', 'ann', '', 'todo', 'untrusted', 'ann heard it', at('-699 min')), ('note', 0, 0, 0, 'clerk', 'ann', '', 'todo', 'private', 'ann said it', at('-701 min')), ('note', 0, 0, 0, 'clerk', 'bob', '', 'todo', 'untrusted', 'bob said it', at('-702 min')),
    ('note', 0, 0, 0, 'clerk', '', 'c1', 'todo', 'untrusted', 'c1 said it', at('-704 min')), ('note', 0, 0, 0, 'desk', 'ann', '', 'todo', 'private', 'desk said it', at('-705 min')),
    ('file', 0, 0, 0, '', '', '', '/home/a', 'untrusted', 'a web page', at('-706 min')), ('file', 0, 0, 0, '', '', '', '/home/b', 'private', 'a diary', at('-707 min'));
insert into turnkeeper.files (path, agent, written_at) values ('/home/a', 'clerk', at('-706 min')), ('/home/b', 'desk', at('-707 min'));

insert into turnkeeper.api_tokens (id, name, sha256, scopes, agents, user_name, created_at, expires_at, last_used_at) overriding system value values
    (701, 'web', repeat('7', 64), '{send,read}', '{clerk,desk}', 'ann', at('-501 min'), at('501 min'), at('-56 min')),
    (702, 'ops', repeat('8', 64), '{operate}', null, '', at('-502 min'), null, null),
    (703, 'past', repeat('9', 64), '{read}', '{old}', 'bob', at('-503 min'), at('-52 min'), at('-54 min'));
insert into turnkeeper.page_sessions (sha256, token_id, expires_at) values
    (repeat('4', 64), 701, at('51 min')), (repeat('5', 64), 702, at('-53 min')), (repeat('6', 64), 703, at('53 min'));
insert into turnkeeper.mcp_tools (server, tool, pinned_description, pinned_schema, pinned_read_only, pinned_idempotent, pinned_hash, pinned_at, description, schema,
    read_only, idempotent, hash, seen_at, gone) values
    ('linear', 'issue', 'pinned issue', '{"p":1}', true, false, 'pin-1', at('-711 min'), 'an issue', '{"s":1}', false, true, 'seen-1', at('-721 min'), false),
    ('linear', 'issues', 'pinned issues', '{"p":2}', false, false, 'same-2', at('-712 min'), 'issues', '{"s":2}', true, true, 'same-2', at('-722 min'), true),
    ('linear', 'other', 'pinned other', '{"p":4}', false, false, 'pin-4', at('-714 min'), 'other', '{"s":4}', true, true, 'seen-4', at('-724 min'), false),
    ('notion', 'issue', 'pinned page', '{"p":3}', false, true, 'pin-3', at('-713 min'), 'a page', '{"s":3}', true, false, 'seen-3', at('-723 min'), false);
insert into turnkeeper.mcp_logins (server, revision, sealed, scopes, wanted, expires_at, renewable, logged_in_at, renewed_at, lapsed, claim, claimed_until) values
    ('linear', 41, '\x4141', '{read,write}', '{admin}', at('58 min'), true, at('-731 min'), at('-741 min'), null, 'claim-linear', at('9 min')),
    ('notion', 42, '\x4242', '{see}', '{}', null, false, at('-732 min'), at('-742 min'), 'revoked', null, null),
    ('slack', 43, '\x4343', '{chat}', '{files}', at('-8 min'), true, at('-733 min'), null, null, 'claim-slack', at('-1 min'));

insert into turnkeeper.set_aside (kind, id, since, failures, last_at, next_try, code, error) values
    ('message', '113', at('-17 min'), 2, at('-16 min'), at('-1 min'), '22000', 'was bad'), ('turn', '202', at('-34 min'), 3, at('-33 min'), at('13 min'), '22001', 'is bad'),
    ('delivery', '601', at('-35 min'), 4, at('-32 min'), at('-2 min'), '22002', 'was wrong'), ('agent', 'clerk', at('-36 min'), 5, at('-31 min'), at('14 min'), '22003', 'bad agent');
insert into turnkeeper.river_job (id, state, attempt, max_attempts, attempted_at, created_at, finalized_at, scheduled_at, priority, args, attempted_by, kind, queue, tags)
    overriding system value values
    (501, 'running', 1, 1, at('-12 min'), at('-13 min'), null, at('-14 min'), 1, '{"turn_id": 201}', '{w4,w1}', 'AgentTurn', 'turns', '{}'),
    (506, 'running', 1, 1, at('-15 min'), at('-16 min'), null, at('-17 min'), 1, '{"turn_id": 206}', '{w4}', 'AgentTurn', 'turns', '{}'),
    (508, 'completed', 1, 1, at('-189 min'), at('-190 min'), at('-180 min'), at('-191 min'), 1, '{"turn_id": 208}', '{w1}', 'AgentTurn', 'turns', '{}'),
    (541, 'running', 1, 1, at('-68 min'), at('-84 min'), null, at('-85 min'), 1, '{"turn_id": 204, "round": 1, "ordinal": 1}', '{w1}', 'DetachedCall', 'detached_slow', '{}'),
    (542, 'running', 1, 1, at('-6 min'), at('-83 min'), null, at('-86 min'), 1, '{"turn_id": 204, "round": 1, "ordinal": 2}', '{w4}', 'DetachedCall', 'detached_long', '{}'),
    (544, 'running', 2, 3, at('-14 min'), at('-76 min'), null, at('-77 min'), 1, '{"turn_id": 207, "round": 1, "ordinal": 3}', '{w1,w3}', 'DetachedCall', 'detached_walk', '{}');
update turnkeeper.settings set max_message_bytes = 70001, max_sender_priority = 9, poll_interval = '7 s', max_dispatches_per_tick = 77, kept_for = '31 days',
    last_tick_at = at('-1 min'), timeline = 'AB', server_started = at('-1000 min'), silence_from = at('-1001 min');

-- So that no statement finds rows in the order of their ids by chance.
update turnkeeper.messages set body = body where id in (101, 104, 109, 113);
update turnkeeper.turns set agent = agent where id in (201, 204, 208, 209);
update turnkeeper.asks set tool = tool where id in (301, 304);
update turnkeeper.replies set body = body where id in (401);
update turnkeeper.webhook_deliveries set webhook = webhook where id in (601, 605);
update turnkeeper.journal set seq = seq where turn_id in (201, 204, 208) and n = 1;
update turnkeeper.agents set models = models where name = 'clerk';
update turnkeeper.awaited_calls set nonce = nonce where ordinal = 1;
update turnkeeper.spawned_calls set agent = agent where ordinal = 1;
update turnkeeper.labels set source = source where kind in ('call', 'message') and label = 'private';
update turnkeeper.outputs set turn_id = turn_id where id = 'out-201';
