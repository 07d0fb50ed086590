drop table turnkeeper.api_tokens;
