/* amqp_load.c - a fast, broker-neutral AMQP 0-9-1 load generator that checks what it receives.
 *
 * build:  gcc -O2 -Wall -o amqp_load amqp_load.c -lpthread [-DWITH_TLS -lssl -lcrypto]
 * output: one JSON object on stdout; exit status 0 only if every check passed.
 *
 * One thread, raw sockets, epoll, precomputed frames: ~0.15-0.5 us of generator CPU per message side,
 * far below any broker. Every body carries (u64 send time ns, u32 producer, u32 sequence) and a known
 * filler, so loss, duplication, reordering, truncation and corruption are all detected:
 *   unconfirmed      published in confirm mode and never confirmed
 *   lost, dup        bitmap per (queue, producer)
 *   order            per (consumer, producer) sequence must rise
 *   bad_body         body size, filler, and content-header properties must come back byte for byte
 *   bad_route        exchange and routing key of the delivery must be those of the publish
 *   left             messages still in a queue at the end, after all were delivered and acked
 *   redelivered      deliveries flagged redelivered (always unexpected here)
 *   bad_confirm      confirm of an unknown / already confirmed tag;  nacks, returned: counted as errors
 *
 * MODES  --mode M
 *   pubsub (default) P producers and C consumers at once, N messages or T seconds, then drain
 *   publish          producers only; the queue is deleted afterwards
 *   consume          consumers only: drain --count messages already in the queue(s) (made by publish --keep)
 *   backlog          fill N (with confirms), record RSS, then drain N with C consumers
 *   churn-conn       connect+open+declare+publish+get+close, N iterations, --threads K
 *   churn-chan       channel.open / channel.close on one connection per thread
 *   churn-queue      queue.declare / queue.delete on one connection per thread
 *   ready            retry until connection.open-ok (start-up time); gives up after --drain-timeout s
 *
 * FLAGS
 *   --tls             over TLS, whoever the broker says it is (needs -DWITH_TLS)
 *   --host H --port N --user U --pass P --vhost V        (127.0.0.1 5672 guest guest /)
 *   --producers P --consumers C                          (1 1)
 *   --queues Q        number of queues (1). consumer c reads queue c%Q
 *   --fanout          publish to a fanout exchange bound to all Q queues (each message is delivered Q times);
 *                     without it producer p publishes through the default exchange to queue p%Q
 *   --etype T         type of the exchange used instead of fanout: direct|topic (binding key "k.<q>";
 *                     producer p publishes with "k.<p%Q>")
 *   --mixed           no two messages in a row alike: eight kinds in a fixed pseudo-random order, of different sizes (16 B to
 *                     9 kB), properties (plain, rich), routing keys and exchanges (the default one, a topic exchange)
 *   --count N         messages per run, over all producers   (100000)
 *   --time T          publish for T seconds instead of N messages
 *   --size S          body bytes, at least 16                 (16)
 *   --persistent      delivery-mode 2;  --durable  durable queues/exchange
 *   --props rich      also content-type, headers table, message-id, correlation-id, reply-to (default: delivery-mode only)
 *   --confirm W       publisher confirms with a window of W outstanding messages per producer (0 = off)
 *   --ack K           manual ack, one basic.ack(multiple) per K deliveries; K=1 acks each singly (0 = autoack)
 *   --prefetch N      basic.qos per consumer (0 = none)
 *   --rate R          total messages/s over all producers, evenly paced; latency is from the *intended* send time
 *   --inflight M      never more than M messages published and not yet delivered (0 = unlimited)
 *   --mandatory       set the mandatory bit
 *   --queue-type T    x-queue-type argument;  --queue-name NAME prefix (load.<pid>)
 *   --pid PID         (repeatable) broker process: report its CPU seconds, RSS before/after/peak
 *   --warmup N        run N messages first, not counted (pubsub only)
 *   --drain-timeout S give up S seconds after the last progress (10)
 *   --keep            do not delete the queues at the end
 *   --threads K       churn modes
 *   --tag STR         copied to the output
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <stdint.h>
#include <stdarg.h>
#include <errno.h>
#include <unistd.h>
#include <fcntl.h>
#include <time.h>
#include <getopt.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <arpa/inet.h>
#ifdef WITH_TLS
#include <openssl/ssl.h>
#endif

typedef uint64_t u64; typedef uint32_t u32; typedef uint16_t u16; typedef uint8_t u8;
static u64 now_ns(void){ struct timespec t; clock_gettime(CLOCK_MONOTONIC,&t); return t.tv_sec*1000000000ull+t.tv_nsec; }

/* ---------- options ---------- */
static struct {
  const char *mode,*host,*user,*pass,*vhost,*qname,*qtype,*etype,*tag; int port,P,C,Q,fanout; u64 count; double time; u32 size;
  int persistent,durable,rich,confirm,ack,prefetch; double rate; u64 inflight; int mandatory; int pids[16],npids; u64 warmup;
  double drain; int keep,threads,mixed,tls;
} o = {.mode="pubsub",.host="127.0.0.1",.user="guest",.pass="guest",.vhost="/",.port=5672,.P=1,.C=1,.Q=1,.count=100000,
       .size=16,.drain=10,.threads=1};

/* ---------- histogram: log-linear, <1% error ---------- */
#define SUB 128
typedef struct { u64 n,max; double sum; u32 b[64*SUB]; } hist;
static int hidx(u64 v){ if(v<SUB) return v; int e=63-__builtin_clzll(v); return (e-6)*SUB+(int)((v>>(e-7))&(SUB-1)); }
static u64 hval(int i){ if(i<SUB) return i; int e=i/SUB+6; return (1ull<<e)+((u64)(i%SUB)<<(e-7))+(1ull<<(e-7))/2; }
static void hadd(hist*h,u64 v){ h->n++; h->sum+=v; if(v>h->max)h->max=v; h->b[hidx(v)]++; }
static double hpct(hist*h,double p){ if(!h->n) return 0; u64 t=(u64)(p*h->n); if(t>=h->n)t=h->n-1; u64 c=0; for(int i=0;i<64*SUB;i++){ c+=h->b[i]; if(c>t) return hval(i)/1000.0; } return h->max/1000.0; }
static void hmerge(hist*a,hist*b){ a->n+=b->n; a->sum+=b->sum; if(b->max>a->max)a->max=b->max; for(int i=0;i<64*SUB;i++) a->b[i]+=b->b[i]; }

/* ---------- broker process stats ---------- */
static double cpu_of(int pid,double*ut,double*st){ char p[64],buf[2048]; snprintf(p,64,"/proc/%d/stat",pid); FILE*f=fopen(p,"r"); if(!f) return 0; size_t n=fread(buf,1,2047,f); fclose(f); buf[n]=0;
  char*q=strrchr(buf,')'); if(!q) return 0; unsigned long u=0,s=0; sscanf(q+2,"%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu",&u,&s); double h=sysconf(_SC_CLK_TCK); if(ut)*ut+=u/h; if(st)*st+=s/h; return (u+s)/h; }
static double cpu_all(double*u,double*s){ double t=0; for(int i=0;i<o.npids;i++) t+=cpu_of(o.pids[i],u,s); return t; }
static long status_kb(int pid,const char*key){ char p[64],l[256]; long v=0; snprintf(p,64,"/proc/%d/status",pid); FILE*f=fopen(p,"r"); if(!f) return 0; size_t k=strlen(key); while(fgets(l,256,f)) if(!strncmp(l,key,k)){ v=atol(l+k+1); break; } fclose(f); return v; }
static long rss_all(void){ long t=0; for(int i=0;i<o.npids;i++) t+=status_kb(o.pids[i],"VmRSS"); return t; }
static long hwm_all(void){ long t=0; for(int i=0;i<o.npids;i++) t+=status_kb(o.pids[i],"VmHWM"); return t; }
static double self_cpu(void){ struct rusage r; getrusage(RUSAGE_SELF,&r); return r.ru_utime.tv_sec+r.ru_stime.tv_sec+(r.ru_utime.tv_usec+r.ru_stime.tv_usec)/1e6; }

/* ---------- errors ---------- */
static u64 e_unconf,e_lost,e_dup,e_order,e_body,e_route,e_left,e_redel,e_confirm,e_nack,e_return,e_proto; static char e_msg[512];
static void proto_err(const char*f,...){ e_proto++; if(!e_msg[0]){ va_list a; va_start(a,f); vsnprintf(e_msg,sizeof e_msg,f,a); va_end(a);} }
static void die(const char*f,...){ va_list a; va_start(a,f); fprintf(stderr,"amqp_load: "); vfprintf(stderr,f,a); fprintf(stderr,"\n"); va_end(a); exit(2); }

/* ---------- buffers ---------- */
static void p16(u8*p,u16 v){ p[0]=v>>8;p[1]=v; } static void p32(u8*p,u32 v){ p[0]=v>>24;p[1]=v>>16;p[2]=v>>8;p[3]=v; }
static void p64(u8*p,u64 v){ p32(p,v>>32); p32(p+4,(u32)v); }
static u16 g16(const u8*p){ return p[0]<<8|p[1]; } static u32 g32(const u8*p){ return (u32)p[0]<<24|p[1]<<16|p[2]<<8|p[3]; }
static u64 g64(const u8*p){ return (u64)g32(p)<<32|g32(p+4); }
typedef struct { u8 b[4096]; int n; } mb;                       /* method builder */
static void m8(mb*m,int v){ m->b[m->n++]=v; } static void m16(mb*m,int v){ p16(m->b+m->n,v); m->n+=2; } static void m32(mb*m,u32 v){ p32(m->b+m->n,v); m->n+=4; }

static void ms(mb*m,const char*s){ int l=strlen(s); m8(m,l); memcpy(m->b+m->n,s,l); m->n+=l; }
static void ml(mb*m,const void*s,int l){ m32(m,l); memcpy(m->b+m->n,s,l); m->n+=l; }
static void mbeg(mb*m,int ch,int cls,int mth){ m->n=0; m8(m,1); m16(m,ch); m32(m,0); m16(m,cls); m16(m,mth); }
static void mend(mb*m){ p32(m->b+3,m->n-7); m8(m,0xCE); }

#define NV 8                                                    /* kinds of message with --mixed; one (0) without */
#define ICAP (1<<19)
#define OCAP (1<<20)
typedef struct conn {
  int fd,role,id,q; void*tls; u32 fmax; u8*ib; size_t il,io; u8*ob; size_t ol,oo; int want;
  /* producer */ u8*tpl[NV]; int tlen[NV],bodyoff[NV],tmax; u64 next,limit,sent,acked,wmask; u64*wts; u8*wdone; u64 low; int blocked,flowoff;
  u64 next_due; double gap;
  /* consumer */ const char*rex[NV]; char*rkey[NV]; u64 dtag,bsize,bgot; int kind,redel,ready; u32 like; u64 pend,lastack,got; u32*last; u32 pid,seq; u64 ts;
} conn;

/* send and recv of a connection, over TLS or not; a full or empty socket is EAGAIN in both */
#ifdef WITH_TLS
static SSL_CTX*tls_ctx;
static int tls_open(conn*c){ if(!tls_ctx){ tls_ctx=SSL_CTX_new(TLS_client_method()); SSL_CTX_set_mode(tls_ctx,SSL_MODE_ENABLE_PARTIAL_WRITE|SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER); }
  c->tls=SSL_new(tls_ctx); SSL_set_fd(c->tls,c->fd); return SSL_connect(c->tls)==1?0:-1; }
static void tls_close(conn*c){ if(c->tls){ SSL_shutdown(c->tls); SSL_free(c->tls); c->tls=NULL; } }
static ssize_t tls_result(conn*c,int k){ if(k>0) return k; switch(SSL_get_error(c->tls,k)){ case SSL_ERROR_WANT_READ: case SSL_ERROR_WANT_WRITE: errno=EAGAIN; return -1; case SSL_ERROR_ZERO_RETURN: return 0; default: errno=EPROTO; return -1; } }
static ssize_t net_send(conn*c,const void*p,size_t n){ return c->tls?tls_result(c,SSL_write(c->tls,p,n)):send(c->fd,p,n,MSG_NOSIGNAL); }
static ssize_t net_recv(conn*c,void*p,size_t n){ return c->tls?tls_result(c,SSL_read(c->tls,p,n)):recv(c->fd,p,n,0); }
static int net_pending(conn*c){ return c->tls&&SSL_pending(c->tls)>0; }
#else
static int tls_open(conn*c){ (void)c; die("built without TLS"); return -1; }
static void tls_close(conn*c){ (void)c; }
static ssize_t net_send(conn*c,const void*p,size_t n){ return send(c->fd,p,n,MSG_NOSIGNAL); }
static ssize_t net_recv(conn*c,void*p,size_t n){ return recv(c->fd,p,n,0); }
static int net_pending(conn*c){ (void)c; return 0; }
#endif
static void xwrite(conn*c,const u8*p,size_t n){ while(n){ ssize_t k=net_send(c,p,n); if(k<0){ if(errno==EAGAIN){ usleep(50); continue; } if(errno==EINTR) continue; die("send: %s",strerror(errno)); } p+=k; n-=k; } }
/* blocking: next frame; returns payload pointer (valid until next call) or NULL on EOF */
static u8* next_frame(conn*c,int*type,int*ch,u32*len){
  for(;;){
    size_t a=c->il-c->io;
    if(a>=7){ u8*p=c->ib+c->io; u32 l=g32(p+3); if(l+8>ICAP) die("frame too large %u",l);
      if(a>=l+8){ if(p[7+l]!=0xCE) die("bad frame end"); *type=p[0]; *ch=g16(p+1); *len=l; c->io+=l+8; return p+7; } }
    if(c->io){ memmove(c->ib,c->ib+c->io,a); c->il=a; c->io=0; }
    ssize_t k=net_recv(c,c->ib+c->il,ICAP-c->il); if(k==0) return NULL; if(k<0){ if(errno==EINTR) continue; return NULL; } c->il+=k; } }
static u8* expect(conn*c,int cls,int mth,u32*len){ int t,ch; u32 l; for(;;){ u8*p=next_frame(c,&t,&ch,&l); if(!p){ if(o.mode[0]=='r') return NULL; die("connection lost waiting for %d.%d",cls,mth);} if(t!=1) continue;
    int a=g16(p),b=g16(p+2); if(a==cls&&b==mth){ if(len)*len=l; return p; }
    if((a==10&&b==50)||(a==20&&b==40)) die("broker closed: %d %.*s (waiting for %d.%d)",g16(p+4),p[6],p+7,cls,mth); } }
static void msend(conn*c,mb*m){ mend(m); xwrite(c,m->b,m->n); }
static conn* conn_new(void){ conn*c=calloc(1,sizeof*c); c->ib=malloc(ICAP); return c; }
static void conn_free(conn*c){ tls_close(c); if(c->fd>=0) close(c->fd); free(c->ib); free(c->ob); free(c); }
static int conn_try(conn*c){ c->fd=socket(AF_INET,SOCK_STREAM|SOCK_CLOEXEC,0); int one=1; setsockopt(c->fd,IPPROTO_TCP,TCP_NODELAY,&one,sizeof one);
  struct timeval tv={10,0}; setsockopt(c->fd,SOL_SOCKET,SO_RCVTIMEO,&tv,sizeof tv);
  struct sockaddr_in a={.sin_family=AF_INET,.sin_port=htons(o.port)}; inet_pton(AF_INET,o.host,&a.sin_addr);
  if(connect(c->fd,(void*)&a,sizeof a)<0){ close(c->fd); c->fd=-1; return -1; }
  if(o.tls&&tls_open(c)<0) die("TLS handshake with %s:%d failed",o.host,o.port);
  xwrite(c,(u8*)"AMQP\0\0\x09\x01",8); mb m; u32 l;
  if(!expect(c,10,10,&l)){ close(c->fd); c->fd=-1; c->il=c->io=0; return -1; }
  mbeg(&m,0,10,11); ml(&m,"\7productS\0\0\0\11amqp_load",22); ms(&m,"PLAIN"); char sasl[256]; int sl=snprintf(sasl,256,"%c%s%c%s",0,o.user,0,o.pass); ml(&m,sasl,sl); ms(&m,"en_US"); msend(c,&m);
  u8*p=expect(c,10,30,&l); if(!p) return -1; int cm=g16(p+4); u32 fm=g32(p+6); if(fm==0||fm>131072) fm=131072; c->fmax=fm;
  mbeg(&m,0,10,31); m16(&m,cm); m32(&m,fm); m16(&m,0); msend(c,&m);
  mbeg(&m,0,10,40); ms(&m,o.vhost); ms(&m,""); m8(&m,0); msend(c,&m); if(!expect(c,10,41,&l)) return -1; return 0; }
static void ch_open(conn*c,int ch){ mb m; mbeg(&m,ch,20,10); ms(&m,""); msend(c,&m); expect(c,20,11,NULL); }
static void ch_close(conn*c,int ch){ mb m; mbeg(&m,ch,20,40); m16(&m,200); ms(&m,"bye"); m16(&m,0); m16(&m,0); msend(c,&m); expect(c,20,41,NULL); }
static conn* conn_open(void){ conn*c=conn_new(); if(conn_try(c)<0) die("cannot connect to %s:%d: %s",o.host,o.port,strerror(errno)); ch_open(c,1); return c; }
static void conn_close(conn*c){ mb m; mbeg(&m,0,10,50); m16(&m,200); ms(&m,"bye"); m16(&m,0); m16(&m,0); msend(c,&m); expect(c,10,51,NULL); conn_free(c); }
static u32 q_declare(conn*c,const char*n,int flags){ mb m; u32 l; mbeg(&m,1,50,10); m16(&m,0); ms(&m,n); m8(&m,flags);
  if(o.qtype){ char t[128]; int k=0; t[k++]=12; memcpy(t+k,"x-queue-type",12); k+=12; t[k++]='S'; p32((u8*)t+k,strlen(o.qtype)); k+=4; memcpy(t+k,o.qtype,strlen(o.qtype)); k+=strlen(o.qtype); ml(&m,t,k);} else m32(&m,0);
  msend(c,&m); u8*p=expect(c,50,11,&l); return g32(p+5+p[4]); }
static void q_delete(conn*c,const char*n){ mb m; mbeg(&m,1,50,40); m16(&m,0); ms(&m,n); m8(&m,0); msend(c,&m); expect(c,50,41,NULL); }

/* ---------- publish template ---------- */
static u8 *filler; static u32 fmaxsize; static char exname[128]; static int nv=1;
static struct { u32 size; int rich; const char*key; u8 props[512]; int nprops; } kinds[NV]={{16,0,NULL},{1024,1,"order.created"},{64,1,NULL},{300,0,"invoice.paid.eu"},{4096,0,NULL},{16,1,"x"},{1024,0,NULL},{9000,1,"metrics.cpu.host-17.load"}};
static int kind_of(u32 p,u32 s){ if(nv==1) return 0; u32 x=s*2654435761u^p*40503u; x^=x>>15; x*=2246822519u; return x>>29; }
static const char* qname(int i);
/* exchange and routing key with which kind v reaches queue q */
static const char* route(int v,int q,char*key){ if(o.mixed&&kinds[v].key){ snprintf(key,192,"k.%d.%s",q,kinds[v].key); return exname; } if(o.mixed||!(o.fanout||o.etype)){ strcpy(key,qname(q)); return ""; }
  if(o.fanout) strcpy(key,"any"); else snprintf(key,192,"k.%d",q); return exname; }
static void build_props(int v){ mb m; m.n=0; int fl=0x1000; char mid[]="0123456789abcdef0123456789abcdef";
  if(kinds[v].rich){ fl|=0x8000|0x2000|0x0400|0x0200|0x0080; m16(&m,fl); ms(&m,"application/json");
    u8 t[256]; int k=0; const char*hs[3]={"x-tenant","x-trace","kind"}; for(int i=0;i<3;i++){ t[k++]=strlen(hs[i]); memcpy(t+k,hs[i],strlen(hs[i])); k+=strlen(hs[i]); t[k++]='S'; p32(t+k,16); k+=4; memcpy(t+k,mid,16); k+=16; }
    t[k++]=1; t[k++]='n'; t[k++]='I'; p32(t+k,42); k+=4; ml(&m,t,k); m8(&m,o.persistent?2:1); ms(&m,mid); ms(&m,"amq.rabbitmq.reply-to.xyz"); ms(&m,mid); }
  else { m16(&m,fl); m8(&m,o.persistent?2:1); }
  memcpy(kinds[v].props,m.b,m.n); kinds[v].nprops=m.n; }
static int build_tpl(u8*d,int v,u32 fmax,const char*ex,const char*rk,int*bodyoff){ u32 size=kinds[v].size; int np=kinds[v].nprops; mb m; mbeg(&m,1,60,40); m16(&m,0); ms(&m,ex); ms(&m,rk); m8(&m,o.mandatory?1:0); mend(&m); int n=m.n; if(d)memcpy(d,m.b,n);
  u8 h[600]; h[0]=2; p16(h+1,1); p32(h+3,12+np); p16(h+7,60); p16(h+9,0); p64(h+11,size); memcpy(h+19,kinds[v].props,np); h[19+np]=0xCE; if(d)memcpy(d+n,h,20+np); n+=20+np;
  *bodyoff=n+7; u32 off=0,mx=fmax-8; while(off<size){ u32 k=size-off<mx?size-off:mx; if(d){ d[n]=3; p16(d+n+1,1); p32(d+n+3,k); memcpy(d+n+7,filler+off,k); d[n+7+k]=0xCE; } n+=k+8; off+=k; } return n; }

/* ---------- check state ---------- */
typedef struct { u64*bits; u64 cap,n,maxseq; } bm; static bm *seen; /* [Q*P] */
static void mark(int q,u32 p,u32 s){ bm*b=&seen[q*o.P+p]; if(s>=b->cap){ u64 nc=b->cap?b->cap:65536; while(nc<=s) nc*=2; b->bits=realloc(b->bits,nc/8); memset((u8*)b->bits+b->cap/8,0,(nc-b->cap)/8); b->cap=nc; }
  u64 w=1ull<<(s&63); if(b->bits[s>>6]&w) e_dup++; else { b->bits[s>>6]|=w; b->n++; } if(s>b->maxseq)b->maxseq=s; }

/* ---------- the run ---------- */
static conn **prod,**cons; static int nprod,ncons; static int ep; static u64 delivered,published,confirmed,t_last_deliver,t_last_confirm,t_last_send,t_progress; static hist hd,hc; static int measuring=1;
static void want(conn*c,int w){ if(c->want==w) return; struct epoll_event e={.events=w,.data.ptr=c}; epoll_ctl(ep,c->want?EPOLL_CTL_MOD:EPOLL_CTL_ADD,c->fd,&e); c->want=w; }
static void out_add(conn*c,const void*p,size_t n){ if(c->ol+n>OCAP){ if(c->oo){ memmove(c->ob,c->ob+c->oo,c->ol-c->oo); c->ol-=c->oo; c->oo=0; } if(c->ol+n>OCAP) die("output overflow"); } memcpy(c->ob+c->ol,p,n); c->ol+=n; }
static int flush(conn*c){ while(c->oo<c->ol){ ssize_t k=net_send(c,c->ob+c->oo,c->ol-c->oo); if(k<0){ if(errno==EAGAIN) return 0; if(errno==EINTR) continue; proto_err("send: %s",strerror(errno)); return -1; } c->oo+=k; } c->oo=c->ol=0; return 1; }

static int can_pub(conn*c,u64 now){ if(c->next>=c->limit||c->flowoff) return 0; if(o.confirm && c->next-c->low>=(u64)o.confirm) return 0;
  if(o.inflight && published-delivered/(o.fanout?o.Q:1)>=o.inflight) return 0; if(c->gap>0 && now<c->next_due) return 0; return 1; }
static void pump(conn*c){ /* produce as much as allowed into the socket */
  for(;;){ if(c->ol-c->oo){ if(flush(c)<=0){ want(c,EPOLLIN|EPOLLOUT); return; } }
    u64 now=now_ns(); int k=0; size_t room=c->tmax>65536?c->tmax:65536;
    while(can_pub(c,now)){ int v=kind_of(c->id,(u32)c->next); size_t tlen=c->tlen[v]; if(k && c->ol+tlen>room) break; u8*d; if(c->ol+tlen>OCAP) break; d=c->ob+c->ol; memcpy(d,c->tpl[v],tlen);
      u8*b=d+c->bodyoff[v]; u64 ts=c->gap>0?c->next_due:now; memcpy(b,&ts,8); u32 pi=c->id,sq=(u32)c->next; memcpy(b+8,&pi,4); memcpy(b+12,&sq,4);
      if(o.confirm){ c->wts[c->next&c->wmask]=now; c->wdone[c->next&c->wmask]=0; }
      if(c->gap>0){ c->next_due+=(u64)c->gap; }
      c->next++; published++; c->ol+=tlen; k++; if(!(k&63)) now=now_ns(); }
    if(!k){ want(c,EPOLLIN); return; } t_last_send=now; t_progress=now; } }
static void confirm1(conn*c,u64 i,u64 now){ u64 s=i&c->wmask; if(i>=c->next||i<c->low||c->wdone[s]){ e_confirm++; return; } c->wdone[s]=1; confirmed++; hadd(&hc,now-c->wts[s]); }
static void on_confirm(conn*c,u64 tag,int multi,int nack){ u64 now=now_ns(); if(nack) e_nack++; if(tag==0&&multi) tag=c->next; if(tag==0||tag>c->next){ e_confirm++; return; }
  if(multi){ for(u64 i=c->low;i<tag;i++) if(!c->wdone[i&c->wmask]) confirm1(c,i,now); if(tag-1<c->low&&0) e_confirm++; } else confirm1(c,tag-1,now);
  while(c->low<c->next && c->wdone[c->low&c->wmask]) c->low++; t_last_confirm=t_progress=now; }
static void body_done(conn*c,u64 now){ c->ready=0; int k=c->kind; c->kind=0; if(k!=1) return;
  u32 p=c->pid,s=c->seq; if(p>=(u32)o.P){ e_body++; return; } mark(c->q,p,s); if(c->last[p]!=0xffffffffu && s<=c->last[p]) e_order++; c->last[p]=s; if(c->redel) e_redel++;
  if(measuring) hadd(&hd,now>c->ts?now-c->ts:0); delivered++; c->got++; 
  if(o.ack){ if(++c->pend>=(u64)o.ack){ u8 f[21]={1,0,1,0,0,0,13,0,60,0,80}; p64(f+11,c->dtag); f[19]=o.ack>1; f[20]=0xCE; out_add(c,f,21); c->lastack=c->dtag; c->pend=0; } } }
static void on_frame(conn*c,int t,int ch,u8*p,u32 l,u64 now){
  if(t==1){ u32 m=g32(p);
    if(m==(60u<<16|60)){ if(c->kind) e_proto++; u8*q=p+4; q+=1+*q; c->dtag=g64(q); c->redel=q[8]; c->kind=1; q+=9; c->like=0;
      for(int v=0;v<nv;v++){ const char*ex=c->rex[v],*rk=c->rkey[v]; size_t a=strlen(ex),b=strlen(rk); if(q[0]==a&&!memcmp(q+1,ex,a)&&q[1+a]==b&&!memcmp(q+2+a,rk,b)) c->like|=1u<<v; }
      if(!c->like){ e_route++; c->like=~0u; } return; }
    if(m==(60u<<16|80)||m==(60u<<16|120)){ on_confirm(c,g64(p+4),p[12]&1,m==(60u<<16|120)); return; }
    if(m==(60u<<16|50)){ e_return++; c->kind=2; return; }
    if(m==(20u<<16|20)){ c->flowoff=!(p[4]&1); mb b; mbeg(&b,ch,20,21); m8(&b,p[4]&1); mend(&b); out_add(c,b.b,b.n); return; }
    if(m==(10u<<16|60)||m==(10u<<16|61)){ c->blocked=m==(10u<<16|60); return; }
    if(m==(10u<<16|50)||m==(20u<<16|40)){ proto_err("closed by broker: %d %.*s",g16(p+4),p[6],p+7); c->limit=c->next; return; }
    if(m==(60u<<16|30)){ proto_err("consumer cancelled"); return; }
    proto_err("unexpected method %d.%d",m>>16,m&0xffff); return; }
  if(t==2){ if(!c->kind||c->ready) e_proto++; c->bsize=g64(p+4); c->bgot=0; c->ready=1; if(c->kind==1){ u32 like=0; for(int v=0;v<nv;v++) if(c->bsize==kinds[v].size&&l==12+(u32)kinds[v].nprops&&!memcmp(p+12,kinds[v].props,kinds[v].nprops)) like|=1u<<v; if(!(c->like&=like)){ e_body++; c->like=~0u; } } if(!c->bsize) body_done(c,now); return; }
  if(t==3){ if(!c->ready){ e_proto++; return; } u64 off=c->bgot; if(off==0&&l>=16){ memcpy(&c->ts,p,8); memcpy(&c->pid,p+8,4); memcpy(&c->seq,p+12,4); if(c->kind==1&&(l>fmaxsize||memcmp(p+16,filler+16,l-16)||!(c->like>>kind_of(c->pid,c->seq)&1))) e_body++; }
    else if(off+l>fmaxsize||memcmp(p,filler+off,l)) e_body++; c->bgot+=l; if(c->bgot>=c->bsize) body_done(c,now); return; }
  if(t==8) return; proto_err("bad frame type %d",t); }
static void parse(conn*c){ u64 now=now_ns(); while(c->il-c->io>=7){ u8*p=c->ib+c->io; u32 l=g32(p+3); if(l>c->fmax+64||p[0]>8){ proto_err("bad frame header"); c->io=c->il; return; } if(c->il-c->io<l+8) break; if(p[7+l]!=0xCE){ proto_err("bad frame end"); c->io=c->il; return; } on_frame(c,p[0],g16(p+1),p+7,l,now); c->io+=l+8; }
  if(c->io==c->il) c->io=c->il=0; else if(c->io>ICAP/2||c->il==ICAP){ memmove(c->ib,c->ib+c->io,c->il-c->io); c->il-=c->io; c->io=0; } }
static int read_once(conn*c){ ssize_t k=net_recv(c,c->ib+c->il,ICAP-c->il); if(k==0){ proto_err("EOF from broker"); want(c,0); epoll_ctl(ep,EPOLL_CTL_DEL,c->fd,NULL); return -1; } if(k<0){ if(errno==EAGAIN||errno==EINTR) return 0; proto_err("recv: %s",strerror(errno)); return -1; }
  c->il+=k; u64 d0=delivered; parse(c); if(delivered!=d0){ t_last_deliver=t_progress=now_ns(); }
  if(c->role==1){ if(flush(c)==0) want(c,EPOLLIN|EPOLLOUT); } else pump(c); return 1; }
static int on_read(conn*c){ int k; do k=read_once(c); while(k>0&&net_pending(c)); return k; }

static char qn[128]; static const char* qname(int i){ static char b[192]; if(o.qname&&o.Q==1) snprintf(b,192,"%s",o.qname); else snprintf(b,192,"%s.%d",o.qname?o.qname:qn,i); return b; }
static void nonblock(conn*c){ fcntl(c->fd,F_SETFL,fcntl(c->fd,F_GETFL)|O_NONBLOCK); }
static void add_consumers(void){ cons=calloc(o.C,sizeof*cons); ncons=o.C; for(int i=0;i<o.C;i++){ conn*c=cons[i]=conn_open(); c->role=1; c->id=i; c->q=i%o.Q; c->ob=malloc(OCAP); c->last=malloc(4*o.P); memset(c->last,0xff,4*o.P); for(int v=0;v<nv;v++){ c->rkey[v]=malloc(192); c->rex[v]=route(v,c->q,c->rkey[v]); } mb m;
    if(o.prefetch){ mbeg(&m,1,60,10); m32(&m,0); m16(&m,o.prefetch); m8(&m,0); msend(c,&m); expect(c,60,11,NULL); }
    mbeg(&m,1,60,20); m16(&m,0); ms(&m,qname(c->q)); char ct[32]; snprintf(ct,32,"ct-%d",i); ms(&m,ct); m8(&m,o.ack?0:2); m32(&m,0); msend(c,&m); expect(c,60,21,NULL); nonblock(c); } }
static void add_producers(u64 total){ prod=calloc(o.P,sizeof*prod); nprod=o.P; u64 base=total/o.P,rem=total%o.P; for(int i=0;i<o.P;i++){ conn*c=prod[i]=conn_open(); c->role=2; c->id=i; c->ob=malloc(OCAP); c->limit=base+(i<(int)rem); if(c->limit>0xfffffff0u) c->limit=0xfffffff0u;
    for(int v=0;v<nv;v++){ char rk[192]; const char*ex=route(v,i%o.Q,rk); int n=build_tpl(NULL,v,c->fmax,ex,rk,&c->bodyoff[v]); c->tpl[v]=malloc(n); c->tlen[v]=build_tpl(c->tpl[v],v,c->fmax,ex,rk,&c->bodyoff[v]);
      if(n>c->tmax) c->tmax=n; if((u32)n>OCAP-65536) die("body too large for this generator"); }
    if(o.confirm){ mb m; mbeg(&m,1,85,10); m8(&m,0); msend(c,&m); expect(c,85,11,NULL); u64 w=1; while(w<(u64)o.confirm+1) w*=2; c->wmask=w-1; c->wts=calloc(w,8); c->wdone=calloc(w,1); }
    nonblock(c); } }
static int prod_done(void){ for(int i=0;i<nprod;i++){ conn*c=prod[i]; if(c->next<c->limit||c->ol!=c->oo) return 0; if(o.confirm&&c->low<c->next) return 0; } return 1; }
/* event loop until everything expected has arrived. mult: deliveries expected per published message */
static void loop(u64 t_stop,u64 expect_fixed,int mult){
  ep=epoll_create1(0); u64 t0=now_ns(); t_progress=t0;
  for(int i=0;i<ncons;i++){ conn*c=cons[i]; c->want=0; want(c,EPOLLIN); if(c->il>c->io){ parse(c); if(delivered) t_last_deliver=now_ns(); flush(c);} }
  for(int i=0;i<nprod;i++){ conn*c=prod[i]; c->want=0; want(c,EPOLLIN); if(o.rate>0){ c->gap=1e9*o.P/o.rate; c->next_due=t0+(u64)(c->gap*i/o.P)+1000000; } pump(c); }
  struct epoll_event ev[64]; u64 settle=0; int stopped=0;
  for(;;){ u64 now=now_ns(); if(t_stop&&!stopped&&now>=t_stop){ stopped=1; for(int i=0;i<nprod;i++) prod[i]->limit=prod[i]->next; }
    u64 want_n=mult?published*mult:expect_fixed; int done=prod_done()&&(!ncons||delivered>=want_n);
    if(done&&!settle) settle=now+(ncons?100000000ull:0); if(settle&&now>=settle) break;
    if(now-t_progress>(u64)(o.drain*1e9)) break; if(e_proto>100||(e_proto&&now-t_progress>2000000000ull)) break;
    u64 tmo=20000000; if(settle) tmo=settle-now; else if(t_stop&&!stopped&&t_stop-now<tmo) tmo=t_stop-now;
    if(o.rate>0&&!stopped) for(int i=0;i<nprod;i++){ conn*c=prod[i]; if(c->next<c->limit){ if(c->next_due<=now){ pump(c); now=now_ns(); } u64 d=c->next_due>now?c->next_due-now:0; if(d<tmo) tmo=d; } }
    struct timespec ts={tmo/1000000000,tmo%1000000000}; int n=epoll_pwait2(ep,ev,64,&ts,NULL); u64 d0=delivered;
    for(int i=0;i<n;i++){ conn*c=ev[i].data.ptr; if(ev[i].events&(EPOLLIN|EPOLLHUP|EPOLLERR)) if(on_read(c)<0) continue; if(ev[i].events&EPOLLOUT){ if(c->role==2) pump(c); else if(flush(c)==1) want(c,EPOLLIN); } }
    if(o.inflight&&delivered!=d0) for(int i=0;i<nprod;i++) if(prod[i]->want==EPOLLIN) pump(prod[i]); }
  close(ep); }
static void final_acks(void){ if(o.ack) for(int i=0;i<ncons;i++){ conn*c=cons[i]; if(c->pend){ u8 f[21]={1,0,1,0,0,0,13,0,60,0,80}; p64(f+11,c->dtag); f[19]=1; f[20]=0xCE; out_add(c,f,21); c->pend=0; } while(flush(c)==0) usleep(100); } }
static void drop(conn**v,int n){ for(int i=0;i<n;i++){ conn*c=v[i]; fcntl(c->fd,F_SETFL,fcntl(c->fd,F_GETFL)&~O_NONBLOCK); if(e_proto){ conn_free(c); continue; } conn_close(c);} }
static void jh(const char*n,hist*h){ printf(", \"%s\": {\"n\": %llu, \"mean\": %.1f, \"p50\": %.1f, \"p95\": %.1f, \"p99\": %.1f, \"p999\": %.1f, \"max\": %.1f}",n,(unsigned long long)h->n,h->n?h->sum/h->n/1000:0,hpct(h,.5),hpct(h,.95),hpct(h,.99),hpct(h,.999),h->max/1000.0); }
static int ok(void){ return !(e_unconf|e_lost|e_dup|e_order|e_body|e_route|e_left|e_redel|e_confirm|e_nack|e_return|e_proto); }
static void jcommon(double cpu,double u,double s,double per,long rss0,long rss1){
  printf(", \"broker_cpu_s\": %.2f, \"broker_user_s\": %.2f, \"broker_sys_s\": %.2f, \"cpu_s_per_M\": %.3f, \"rss_before_kb\": %ld, \"rss_after_kb\": %ld, \"hwm_kb\": %ld, \"gen_cpu_s\": %.2f",cpu,u,s,per>0?cpu/per*1e6:0,rss0,rss1,hwm_all(),self_cpu());
  printf(", \"errors\": {\"unconfirmed\": %llu, \"lost\": %llu, \"dup\": %llu, \"order\": %llu, \"bad_body\": %llu, \"bad_route\": %llu, \"left\": %llu, \"redelivered\": %llu, \"bad_confirm\": %llu, \"nack\": %llu, \"returned\": %llu, \"proto\": %llu, \"msg\": \"%s\"}, \"ok\": %s}\n",
   (unsigned long long)e_unconf,(unsigned long long)e_lost,(unsigned long long)e_dup,(unsigned long long)e_order,(unsigned long long)e_body,(unsigned long long)e_route,(unsigned long long)e_left,(unsigned long long)e_redel,(unsigned long long)e_confirm,(unsigned long long)e_nack,(unsigned long long)e_return,(unsigned long long)e_proto,e_msg,ok()?"true":"false"); fflush(stdout); }
static void jhead(void){ printf("{\"mode\": \"%s\", \"tag\": \"%s\", \"port\": %d, \"producers\": %d, \"consumers\": %d, \"queues\": %d, \"fanout\": %d, \"size\": %u, \"persistent\": %d, \"confirm\": %d, \"ack\": %d, \"prefetch\": %d, \"rate\": %.0f, \"mixed\": %d",o.mode,o.tag?o.tag:"",o.port,o.P,o.C,o.Q,o.fanout,o.size,o.persistent,o.confirm,o.ack,o.prefetch,o.rate,o.mixed); }
static void count_lost(void){ for(int q=0;q<o.Q;q++) for(int p=0;p<nprod;p++){ if(!o.fanout && p%o.Q!=q) continue; u64 sent=prod[p]->next, got=seen[q*o.P+p].n; if(got<sent) e_lost+=sent-got; else if(got>sent) e_dup+=got-sent; } }

static void setup_topology(conn*a){ int fl=o.durable?2:0; for(int i=0;i<o.Q;i++) q_declare(a,qname(i),fl);
  if(o.fanout||o.etype){ snprintf(exname,128,"%.100s.ex",o.qname?o.qname:qn); mb m; mbeg(&m,1,40,10); m16(&m,0); ms(&m,exname); ms(&m,o.fanout?"fanout":o.etype); m8(&m,o.durable?2:0); m32(&m,0); msend(a,&m); expect(a,40,11,NULL);
    for(int i=0;i<o.Q;i++){ char rk[32]; snprintf(rk,32,o.mixed?"k.%d.#":"k.%d",i); mbeg(&m,1,50,20); m16(&m,0); ms(&m,qname(i)); ms(&m,exname); ms(&m,o.fanout?"":rk); m8(&m,0); m32(&m,0); msend(a,&m); expect(a,50,21,NULL);} } }
static void teardown(conn*a){ if(o.keep) return; for(int i=0;i<o.Q;i++) q_delete(a,qname(i)); if(o.fanout||o.etype){ mb m; mbeg(&m,1,40,20); m16(&m,0); ms(&m,exname); m8(&m,0); msend(a,&m); expect(a,40,21,NULL);} }

static void run_main(void){
  int consume_only=!strcmp(o.mode,"consume"),publish_only=!strcmp(o.mode,"publish"),backlog=!strcmp(o.mode,"backlog");
  conn*a=conn_open(); setup_topology(a); seen=calloc(o.Q*o.P,sizeof*seen); int mult=o.fanout?o.Q:1;
  u64 total=o.time>0?(u64)0xffffffff*o.P:o.count;
  if(o.warmup&&!consume_only&&!publish_only&&!backlog){ double r=o.rate; o.rate=0; u64 inf=o.inflight; o.inflight=inf?inf:2000; add_consumers(); add_producers(o.warmup); loop(0,0,mult); final_acks(); drop(prod,nprod); drop(cons,ncons); o.rate=r; o.inflight=inf;
    for(int i=0;i<o.Q*o.P;i++){ free(seen[i].bits); memset(&seen[i],0,sizeof seen[i]); } memset(&hd,0,sizeof hd); memset(&hc,0,sizeof hc); delivered=published=confirmed=0; usleep(200000); }
  long rss0=rss_all(); double u0=0,s0=0,u1=0,s1=0; double c0,c1; u64 t0,t1; long rssf=0; double fill_s=0,fill_cpu=0;
  if(backlog){ if(!o.confirm) o.confirm=2000; c0=cpu_all(NULL,NULL); t0=now_ns(); nprod=0; ncons=0; add_producers(o.count); loop(0,0,0); t1=now_ns(); e_unconf=published-confirmed; fill_s=(t1-t0)/1e9; fill_cpu=cpu_all(NULL,NULL)-c0; rssf=rss_all(); conn**pp=prod; int np=nprod; nprod=0; 
    c0=cpu_all(&u0,&s0); t0=now_ns(); add_consumers(); loop(0,o.count*mult,0); c1=cpu_all(&u1,&s1); t1=t_last_deliver; prod=pp; nprod=np; count_lost(); final_acks(); drop(cons,ncons); drop(prod,nprod);
    u32 left=0; for(int i=0;i<o.Q;i++) left+=q_declare(a,qname(i),o.durable?2:0); e_left=left; jhead(); printf(", \"count\": %llu, \"fill_s\": %.3f, \"fill_per_s\": %.0f, \"fill_cpu_s_per_M\": %.3f, \"rss_full_kb\": %ld, \"rss_bytes_per_msg\": %.0f, \"drain_s\": %.3f, \"drain_per_s\": %.0f, \"left\": %u",(unsigned long long)o.count,fill_s,o.count/fill_s,fill_cpu/o.count*1e6,rssf,(rssf-rss0)*1024.0/o.count,(t1-t0)/1e9,delivered/((t1-t0)/1e9),left);
    jcommon(c1-c0,u1-u0,s1-s0,delivered,rss0,rss_all()); teardown(a); conn_close(a); return; }
  if(!publish_only) add_consumers(); if(!consume_only) add_producers(total);
  if(consume_only) nprod=0;
  c0=cpu_all(&u0,&s0); t0=now_ns(); double g0=self_cpu();
  loop(o.time>0?t0+(u64)(o.time*1e9):0,consume_only?o.count:0,publish_only?0:(consume_only?0:mult));
  c1=cpu_all(&u1,&s1); double g1=self_cpu(); long rss1=rss_all(); final_acks(); if(o.confirm&&!consume_only) e_unconf=published-confirmed;
  if(!consume_only&&!publish_only) count_lost(); else if(consume_only&&delivered<o.count) e_lost=o.count-delivered;
  u64 te=publish_only?(o.confirm?t_last_confirm:t_last_send):t_last_deliver; double el=(te-t0)/1e9; if(o.confirm&&!consume_only&&t_last_confirm>te&&!publish_only) el=(t_last_confirm-t0)/1e9;
  u64 pub=published,del=delivered,cf=confirmed; drop(cons,publish_only?0:ncons); drop(prod,nprod);
  usleep(publish_only?0:20000); u32 left=0; for(int i=0;i<o.Q;i++) left+=q_declare(a,qname(i),o.durable?2:0); if(!publish_only&&!consume_only) e_left=left; jhead(); printf(", \"published\": %llu, \"delivered\": %llu, \"confirmed\": %llu, \"elapsed_s\": %.4f, \"msgs_per_s\": %.0f, \"pub_per_s\": %.0f, \"left\": %u, \"gen_us_per_msg\": %.3f",(unsigned long long)pub,(unsigned long long)del,(unsigned long long)cf,el,(publish_only?pub:del)/el,pub/((t_last_send-t0)/1e9+1e-9),left,(g1-g0)*1e6/((publish_only?pub:del)+1e-9));
  if(del) jh("latency_us",&hd); if(cf) jh("confirm_us",&hc);
  jcommon(c1-c0,u1-u0,s1-s0,publish_only?pub:del,rss0,rss1); teardown(a); conn_close(a); }

/* ---------- churn ---------- */
typedef struct { int id; u64 n; hist h; u64 retry; } thr;
static void* churn(void*v){ thr*t=v; int kc=!strcmp(o.mode,"churn-conn"),kh=!strcmp(o.mode,"churn-chan"); conn*c=kc?NULL:conn_open(); char q[64]; u32 l;
  u8*tpl=NULL; for(u64 i=0;i<t->n;i++){ u64 a=now_ns(); snprintf(q,64,"churn.%d.%d.%llu",getpid(),t->id,(unsigned long long)i);
    if(kh){ ch_open(c,2); ch_close(c,2); }
    else if(!kc){ q_declare(c,q,o.durable?2:0); q_delete(c,q); }
    else { c=conn_open(); q_declare(c,q,4); int bo; int n=build_tpl(NULL,0,c->fmax,"",q,&bo); tpl=realloc(tpl,n); build_tpl(tpl,0,c->fmax,"",q,&bo); u32 sq=i; memcpy(tpl+bo+12,&sq,4); xwrite(c,tpl,n);
      for(;;){ mb m; mbeg(&m,1,60,70); m16(&m,0); ms(&m,q); m8(&m,1); msend(c,&m); int ty,ch; u8*p=next_frame(c,&ty,&ch,&l); if(!p) die("EOF"); u32 mm=g32(p); if(mm==(60u<<16|72)){ t->retry++; continue; } if(mm!=(60u<<16|71)) die("unexpected %u.%u",mm>>16,mm&0xffff);
        p=next_frame(c,&ty,&ch,&l); if(ty!=2||g64(p+4)!=o.size) e_body++; p=next_frame(c,&ty,&ch,&l); u32 g; memcpy(&g,p+12,4); if(ty!=3||g!=sq) e_body++; break; }
      conn_close(c); }
    hadd(&t->h,now_ns()-a); }
  if(!kc) conn_close(c); return NULL; }
static void run_churn(void){ long rss0=rss_all(); double u0=0,s0=0,u1=0,s1=0; double c0=cpu_all(&u0,&s0); u64 t0=now_ns(); pthread_t th[256]; thr*t=calloc(o.threads,sizeof*t);
  for(int i=0;i<o.threads;i++){ t[i].id=i; t[i].n=o.count/o.threads; pthread_create(&th[i],NULL,churn,&t[i]); } u64 n=0,r=0; for(int i=0;i<o.threads;i++){ pthread_join(th[i],NULL); n+=t[i].n; r+=t[i].retry; hmerge(&hd,&t[i].h); }
  double el=(now_ns()-t0)/1e9; double c1=cpu_all(&u1,&s1); jhead(); printf(", \"threads\": %d, \"iterations\": %llu, \"get_retries\": %llu, \"elapsed_s\": %.3f, \"per_s\": %.1f",o.threads,(unsigned long long)n,(unsigned long long)r,el,n/el); jh("latency_us",&hd); jcommon(c1-c0,u1-u0,s1-s0,n,rss0,rss_all()); }
static void run_ready(void){ u64 t0=now_ns(); conn*c=conn_new(); u64 tries=0; for(;;){ tries++; c->il=c->io=0; if(conn_try(c)==0) break; if(now_ns()-t0>(u64)(o.drain*1e9)) die("not ready"); usleep(1000); } printf("{\"mode\": \"ready\", \"ready_ms\": %.1f, \"tries\": %llu, \"rss_kb\": %ld}\n",(now_ns()-t0)/1e6,(unsigned long long)tries,rss_all()); conn_close(c); }

int main(int ac,char**av){
  static struct option lo[]={{"mode",1,0,1},{"host",1,0,2},{"port",1,0,3},{"user",1,0,4},{"pass",1,0,5},{"vhost",1,0,6},{"producers",1,0,7},{"consumers",1,0,8},{"queues",1,0,9},{"fanout",0,0,10},{"etype",1,0,11},{"count",1,0,12},{"time",1,0,13},{"size",1,0,14},{"persistent",0,0,15},{"durable",0,0,16},{"props",1,0,17},{"confirm",1,0,18},{"ack",1,0,19},{"prefetch",1,0,20},{"rate",1,0,21},{"inflight",1,0,22},{"mandatory",0,0,23},{"queue-type",1,0,24},{"queue-name",1,0,25},{"pid",1,0,26},{"warmup",1,0,27},{"drain-timeout",1,0,28},{"keep",0,0,29},{"threads",1,0,30},{"tag",1,0,31},{"mixed",0,0,32},{"tls",0,0,33},{0,0,0,0}};
  int k; while((k=getopt_long(ac,av,"",lo,NULL))!=-1) switch(k){ case 1:o.mode=optarg;break; case 2:o.host=optarg;break; case 3:o.port=atoi(optarg);break; case 4:o.user=optarg;break; case 5:o.pass=optarg;break; case 6:o.vhost=optarg;break;
    case 7:o.P=atoi(optarg);break; case 8:o.C=atoi(optarg);break; case 9:o.Q=atoi(optarg);break; case 10:o.fanout=1;break; case 11:o.etype=optarg;break; case 12:o.count=strtoull(optarg,0,10);break; case 13:o.time=atof(optarg);break; case 14:o.size=atoi(optarg);break;
    case 15:o.persistent=1;break; case 16:o.durable=1;break; case 17:o.rich=!strcmp(optarg,"rich");break; case 18:o.confirm=atoi(optarg);break; case 19:o.ack=atoi(optarg);break; case 20:o.prefetch=atoi(optarg);break; case 21:o.rate=atof(optarg);break; case 22:o.inflight=strtoull(optarg,0,10);break;
    case 33:o.tls=1;break; case 23:o.mandatory=1;break; case 24:o.qtype=optarg;break; case 25:o.qname=optarg;break; case 26:if(o.npids<16)o.pids[o.npids++]=atoi(optarg);break; case 27:o.warmup=strtoull(optarg,0,10);break; case 28:o.drain=atof(optarg);break; case 29:o.keep=1;break; case 30:o.threads=atoi(optarg);break; case 31:o.tag=optarg;break; case 32:o.mixed=1;break; default: return 2; }
  if(o.size<16) o.size=16; if(o.ack&&o.prefetch&&o.ack>o.prefetch) die("--ack must be <= --prefetch"); if(o.threads>256) o.threads=256;
  signal(SIGPIPE,SIG_IGN); snprintf(qn,128,"load.%d",getpid()); if(o.mixed){ if(o.fanout||o.etype) die("--mixed brings its own exchange"); o.etype="topic"; nv=NV; } else { kinds[0].size=o.size; kinds[0].rich=o.rich; }
  for(int v=0;v<nv;v++){ build_props(v); if(kinds[v].size>fmaxsize) fmaxsize=kinds[v].size; } filler=malloc(fmaxsize+16); for(u32 i=0;i<fmaxsize;i++) filler[i]=(u8)(i*31+7);
  if(!strncmp(o.mode,"churn",5)) run_churn(); else if(!strcmp(o.mode,"ready")) run_ready(); else run_main();
  return ok()?0:1; }
