drop function turnkeeper.enqueue_response;
drop table turnkeeper.responses;
