package turnkeeper

// ToolSpawnAgent is the tool by which an agent gives work to another.
const ToolSpawnAgent = "spawn_agent"

// ToolAskPerson is the tool by which a model asks a person.
const ToolAskPerson = "ask_person"
