package archtest_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestConversationsHaveTheirUser looks for code that takes a conversation for the same as another by agent and name
// alone. Two users of an agent would share it. A schedule has no user.
func TestConversationsHaveTheirUser(t *testing.T) {
	t.Parallel()
	seen := map[string]int{}
	err := filepath.WalkDir("../..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() && (strings.HasPrefix(entry.Name(), ".git") || entry.Name() == "bin") {
			return filepath.SkipDir
		}
		find := strays[filepath.Ext(path)]
		if entry.IsDir() || find == nil || strings.HasSuffix(path, "_test.go") || strings.HasSuffix(path,
			".down.sql") || strings.Contains(path, "dbsqlc") ||
			strings.Contains(path, "storesuite") {
			return nil
		}
		content, err := os.ReadFile(path)
		for _, stray := range find(string(content)) {
			t.Errorf("%s: %q compares or inserts a conversation without its user", path, stray)
		}
		seen[filepath.Ext(path)]++
		return err
	})
	if err != nil || seen[".sql"] < 20 || seen[".go"] < 300 {
		t.Errorf("files %v, %v", seen, err)
	}
}

// strays find the code, by the extension of a file.
var strays = map[string]func(string) []string{".sql": strayStatements, ".go": strayGo}

var (
	comment = regexp.MustCompile(`--[^\n]*`)
	// A comparison of a conversation, or one next to an agent: in a list of columns, a row, or the arguments of a
	// function.
	conversation = regexp.MustCompile(
		`(agent|p_agent)(::text)?,\s+([a-z@]+\.?)?(p_)?conversation\b|(\b[a-z]+\.)?\b(p_)?conversation\s*(=|<>|>=|<=)\s|(=|<>)\s*([a-z]+\.)?(p_)?conversation\b`)
	assigned = regexp.MustCompile(`^[a-z_.]*conversation\s*=\s*(excluded\.conversation|'')`)
	hasUser  = regexp.MustCompile(`user_name|p_user|'', `)
	goPair   = regexp.MustCompile(
		`\.Conversation (==|!=) \w+\.Conversation|agent, conversation string|[aA]gent *\+ *"/" *\+ *\w*\.?[cC]onversation`)
)

// near is how many characters before and after a conversation its user may stand.
const near = 110

func strayStatements(sql string) (found []string) {
	sql = comment.ReplaceAllString(sql, "")
	for _, at := range conversation.FindAllStringIndex(sql, -1) {
		from, to := max(at[0]-near, 0), min(at[1]+near, len(sql))
		if !hasUser.MatchString(sql[from:to]) && !assigned.MatchString(sql[at[0]:to]) {
			found = append(found, strings.Join(strings.Fields(sql[at[0]:to]), " "))
		}
	}
	return found
}

func strayGo(source string) []string { return goPair.FindAllString(source, -1) }

func TestStrayConversations(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		kind, code string
		stray      bool
	}{
		{".sql", "where p.agent = m.agent and p.conversation = m.conversation", true},
		{".sql", "where p.agent = m.agent and p.user_name = m.user_name and p.conversation = m.conversation", false},
		{".sql", "where agent = @agent and conversation >= @conversation::text", true},
		{".sql", "create index i on turnkeeper.turns (agent, conversation, id)", true},
		{".sql", "create index i on turnkeeper.turns (agent, user_name, conversation, id)", false},
		{".sql", "select turnkeeper.held_lane(p_agent, p_conversation)", true},
		{".sql", "select turnkeeper.held_lane(p_agent, '', p_conversation)", false},
		{".sql", "-- where p.conversation = m.conversation", false},
		{".sql", "on conflict do update set conversation = excluded.conversation", false},
		{".go", "turn.Agent == m.Agent && turn.Conversation == m.Conversation", true},
		{".go", "turn.ConversationKey() == m.ConversationKey()", false},
		{".go", "func held(agent, conversation string) bool", true},
		{".go", `turnkeeper.Lane(t.Agent+"/"+t.Conversation)`, true},
	} {
		if got := strays[c.kind](c.code); len(got) > 0 != c.stray {
			t.Errorf("%s: found %q", c.code, got)
		}
	}
}
