package bench
import ("testing";"net";"net/http";"context";"fmt";"time";"turnkeeper/inference";"turnkeeper/inference/openai";"sync/atomic")
func TestConns(t *testing.T){
 m,_:=startModel(); defer m.close()
 var n atomic.Int64
 m.server.ConnState=func(c net.Conn,s http.ConnState){ if s==http.StateNew{n.Add(1)} }
 c,err:=openai.New(openai.Config{Name:"b",BaseURL:m.url}); if err!=nil{t.Fatal(err)}
 req:=inference.Request{Model:"instant",Messages:[]inference.Message{{Role:"system",Text:"x"},{Role:"user",Text:"hello"}},Tools:[]inference.ToolDefinition{{Name:"noop",Description:"d",Parameters:[]byte(`{"type":"object","properties":{}}`)}}}
 for range 20 { c.Generate(context.Background(),req,nil) }
 b:=time.Now(); N:=500
 for range N { if _,err:=c.Generate(context.Background(),req,func(inference.Delta){});err!=nil{t.Fatal(err)} }
 fmt.Println("conns",n.Load(),"per call",time.Since(b)/time.Duration(N))
 f:=&floor{url:m.url,client:http.DefaultClient}
 for range 20 { f.ask(context.Background(),1) }
 b=time.Now(); for range N { f.ask(context.Background(),1) }
 fmt.Println("floor per call",time.Since(b)/time.Duration(N))
}
