drop table turnkeeper.mcp_logins;
