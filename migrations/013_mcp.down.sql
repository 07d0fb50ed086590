drop table turnkeeper.mcp_tools;
