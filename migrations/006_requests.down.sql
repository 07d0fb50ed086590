alter table turnkeeper.rounds drop column request;
drop table turnkeeper.request_parts;
