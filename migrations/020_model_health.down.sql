drop function turnkeeper.note_models(text[], text[], integer[], text[], text[], interval[]);
drop function turnkeeper.chain_down(text[]);
drop function turnkeeper.failure_pause(integer);
alter table turnkeeper.leases drop column waits_for;
alter table turnkeeper.messages drop column faults;
alter table turnkeeper.agents drop column models, drop column give_up_after;
drop table turnkeeper.model_health;
