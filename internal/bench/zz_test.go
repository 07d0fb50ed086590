package bench
import ("testing";"os";"context";"time";"fmt";"path/filepath";"turnkeeper/internal/pgdev")
func TestZZ(t *testing.T){
 dir,_:=os.MkdirTemp("","zz-"); defer os.RemoveAll(dir); os.Chmod(dir,0o755)
 s,err:=pgdev.Open(t.Context(),pgdev.Options{Dir:filepath.Join(dir,"db"),Settings:map[string]string{"shared_preload_libraries":os.Getenv("PRELOAD"),"log_min_duration_statement":os.Getenv("LOGMIN"),"log_line_prefix":"%n %p "}}); if err!=nil{t.Fatal(err)}
 defer s.Close(context.Background())
 b,err:=prepare(t.Context(),Options{Idle:60,Turns:300,Lanes:[]int{100}}.withDefaults(),dir,s.URL()); if err!=nil{t.Fatal(err)}
 defer b.close()
 if os.Getenv("PRELOAD")!="" { if _,err:=b.pool.Exec(t.Context(),"create extension if not exists pg_stat_statements; select pg_stat_statements_reset()");err!=nil{t.Log(err)} }
 if os.Getenv("MODE")=="lanes" { n:=600; beg:=time.Now(); r,err:=b.throughput(t.Context(),100,n); if err!=nil{t.Fatal(err)}; fmt.Println("turns/s",r,time.Since(beg)) } else {
  var r Report; if err:=b.measureIdle(t.Context(),&r);err!=nil{t.Fatal(err)}; fmt.Printf("first %v reply %v floor %v\n",r.FirstRequest,r.Reply,r.FloorReply) }
 if os.Getenv("PRELOAD")!="" { rows,_:=b.pool.Query(t.Context(),"select calls, round(total_exec_time::numeric,1) as ms, round(min_exec_time::numeric,3) as mean, left(regexp_replace(query,'\\s+',' ','g'),110) from pg_stat_statements order by calls*min_exec_time desc limit 28"); for rows.Next(){ var c int64; var ms,mean float64; var q string; rows.Scan(&c,&ms,&mean,&q); fmt.Println(c,ms,mean,q)} }
 if f:=os.Getenv("COPYLOG"); f!="" { d,_:=os.ReadFile(filepath.Join(dir,"db","log")); os.WriteFile(f,d,0o644)}
}
