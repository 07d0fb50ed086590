drop table turnkeeper.page_sessions;
