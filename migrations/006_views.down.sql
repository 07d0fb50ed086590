drop view turnkeeper.lease_log, turnkeeper.calls, turnkeeper.call_results, turnkeeper.rounds;
