drop view turnkeeper.lease_log, turnkeeper.calls, turnkeeper.call_results, turnkeeper.rounds,
    turnkeeper.journal_answers;
drop function turnkeeper.tools_perhaps_run, turnkeeper.call_if_readable;
