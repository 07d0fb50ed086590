package turnkeeper

// ToolSpawnAgent is the tool by which an agent gives work to another.
const ToolSpawnAgent = "spawn_agent"
