"""A few sentences in each of many languages, and the encodings in which people keep them."""

SENTENCES = {
    "English": (
        "The warehouse opens at seven, and the café beside it an hour later. Whoever wants to "
        "see the façade of the old mill has to walk along the river; it was built by a Swiss "
        "engineer named Zürcher, who came here as a young man. His niece Zoë still lives in the "
        "house."
    ),
    "German": (
        "Das Lager öffnet um sieben Uhr, und die Bäckerei daneben eine Stunde später. Wer die "
        "alte Mühle sehen möchte, muss am Fluss entlanggehen. Sie wurde von einem Ingenieur aus "
        "Zürich gebaut, der als junger Mann hierher kam und für seine Größe bekannt war. "
        "Übrigens ist es schön."
    ),
    "French": (
        "L'entrepôt ouvre à sept heures, et la boulangerie d'à côté une heure après. Celui qui "
        "veut voir la façade du vieux moulin doit longer la rivière ; il a été bâti par un "
        "ingénieur français, arrivé là très jeune. Sa sœur habite encore cette maison où tout "
        "est resté en place."
    ),
    "Spanish": (
        "El almacén abre a las siete de la mañana y la panadería una hora después. Quien quiera "
        "ver el molino tendrá que caminar junto al río. ¿Sabe usted quién lo construyó? Fue un "
        "señor de Logroño que llegó aquí muy joven; según dicen, también diseñó el puente más "
        "antiguo."
    ),
    "Portuguese": (
        "O armazém abre às sete da manhã e a padaria uma hora depois. Quem quiser ver o velho "
        "moinho terá de caminhar junto ao rio. Não se sabe quem o construiu, mas a tradição diz "
        "que foi um engenheiro de Guimarães. As estações do ano são muito diferentes nesta "
        "região."
    ),
    "Italian": (
        "Il magazzino apre alle sette e la panetteria un'ora più tardi. Chi vuole vedere il "
        "mulino deve camminare lungo il fiume: è stato costruito da un ingegnere che arrivò qui "
        "molto giovane. Perché la città non lo ricordi, nessuno lo sa; la sua casa però c'è "
        "ancora, laggiù."
    ),
    "Danish": (
        "Lageret åbner klokken syv, og bageriet ved siden af en time senere. Den, der vil se den "
        "gamle mølle, må gå langs åen. Den er bygget af en ingeniør, som kom hertil som ung "
        "mand, og det er ikke til at forstå, at huset stadig står. Søndag er der også åbent for "
        "børn."
    ),
    "Swedish": (
        "Lagret öppnar klockan sju, och bageriet bredvid en timme senare. Den som vill se den "
        "gamla kvarnen måste gå längs ån. Den byggdes av en ingenjör som kom hit när han var "
        "ung, och det är inte många som vet att huset står kvar. På söndagar är det också öppet "
        "för barn."
    ),
    "Finnish": (
        "Varasto avataan kello seitsemän, ja leipomo sen vieressä tuntia myöhemmin. Se, joka "
        "haluaa nähdä vanhan myllyn, joutuu kävelemään joen vartta. Myllyn rakensi insinööri, "
        "joka oli tullut tänne nuorena, ja hän ei lähtenyt enää koskaan. Päivällä täällä on myös "
        "näyttely."
    ),
    "Polish": (
        "Magazyn otwiera się o siódmej, a piekarnia obok godzinę później. Kto chce zobaczyć "
        "stary młyn, musi pójść wzdłuż rzeki. Zbudował go inżynier, który przyjechał tu jako "
        "młody człowiek i nie wyjechał już nigdy. Źródła mówią, że dom stoi do dziś, lecz są też "
        "wątpliwości."
    ),
    "Czech": (
        "Sklad se otevírá v sedm hodin a pekárna vedle o hodinu později. Kdo chce vidět starý "
        "mlýn, musí jít podél řeky. Postavil ho inženýr, který sem přišel jako mladý muž, a říká "
        "se, že už nikdy neodjel. Jeho dům stojí dodnes, ale je zavřený. Příští týden se tu koná "
        "výstava."
    ),
    "Slovak": (
        "Sklad sa otvára o siedmej a pekáreň vedľa o hodinu neskôr. Kto chce vidieť starý mlyn, "
        "musí ísť popri rieke. Postavil ho inžinier, ktorý sem prišiel ako mladý muž, a hovorí "
        "sa, že už nikdy neodišiel. Jeho dom stojí dodnes, ale nie je otvorený. Ďalší týždeň "
        "príďte."
    ),
    "Hungarian": (
        "A raktár hétkor nyit, a mellette lévő pékség pedig egy órával később. Aki látni akarja "
        "a régi malmot, annak a folyó mentén kell mennie. Egy mérnök építette, aki fiatalon jött "
        "ide, és azt mondják, hogy már nem is ment el többé. A háza ma is áll, de csak nyáron "
        "működő."
    ),
    "Romanian": (
        "Depozitul se deschide la ora şapte, iar brutăria de alături cu o oră mai târziu. Cine "
        "vrea să vadă moara veche trebuie să meargă pe lângă râu. A fost construită de un "
        "inginer care a venit aici în tinereţe şi nu a mai plecat. Casa lui este şi astăzi în "
        "picioare."
    ),
    "Croatian": (
        "Skladište se otvara u sedam, a pekara pokraj njega sat kasnije. Tko želi vidjeti stari "
        "mlin, mora ići uz rijeku. Sagradio ga je inženjer koji je došao ovamo kao mladić, i "
        "kažu da više nije otišao. Njegova kuća još stoji, ali nije otvorena. Sljedeći tjedan će "
        "biti izložba."
    ),
    "Slovene": (
        "Skladišče se odpre ob sedmih, pekarna zraven pa eno uro kasneje. Kdor želi videti stari "
        "mlin, mora iti ob reki. Zgradil ga je inženir, ki je prišel sem kot mladenič, in "
        "pravijo, da ni več odšel. Njegova hiša še stoji, vendar je zaprta. Prihodnji teden bo "
        "tam večja prireditev."
    ),
    "Turkish": (
        "Depo saat yedide açılır, yanındaki fırın ise bir saat sonra. Eski değirmeni görmek "
        "isteyen ırmak boyunca yürümek zorundadır. Onu buraya genç yaşta gelen bir mühendis "
        "yaptı ve bir daha gitmedi. Evi bugün de ayakta, ama kapalı; çocuklar için güzel bir "
        "müze olarak açılacak."
    ),
    "Latvian": (
        "Noliktava tiek atvērta septiņos, un maiznīca tai blakus stundu vēlāk. Kas grib redzēt "
        "vecās dzirnavas, tam jāiet gar upi. Tās ir uzcēlis inženieris, kas šeit ieradās jauns, "
        "un saka, ka viņš vairs nav aizbraucis. Māja vēl stāv, bet tā ir slēgta; kā lai to "
        "šķērso?"
    ),
    "Lithuanian": (
        "Sandėlis atidaromas septintą, o kepykla šalia jo valanda vėliau. Kas nori pamatyti seną "
        "malūną, turi eiti palei upę. Jį pastatė inžinierius, kuris čia atvyko jaunas, ir "
        "sakoma, kad jis jau niekur neišvyko. Namas tebestovi, bet yra uždarytas iki kito "
        "mėnesio, būtų gerai."
    ),
    "Estonian": (
        "Ladu avatakse kell seitse ja pagariäri selle kõrval tund hiljem. Kes tahab näha vana "
        "veskit, see peab minema mööda jõe äärt. Selle ehitas insener, kes oli siia tulnud "
        "noorena ning ei lahkunud enam kunagi. Tema maja on alles, aga suletud; külla tulla või "
        "mitte, õhtul jääb."
    ),
    "Russian": (
        "Склад открывается в семь часов, а пекарня рядом с ним на час позже. Кто хочет увидеть "
        "старую мельницу, должен идти вдоль реки. Её построил инженер, который приехал сюда "
        "молодым, и говорят, что он так и не уехал. Дом его стоит до сих пор, но он закрыт для "
        "всех."
    ),
    "Ukrainian": (
        "Склад відчиняється о сьомій, а пекарня поруч на годину пізніше. Хто хоче побачити "
        "старий млин, має йти вздовж річки. Його збудував інженер, який приїхав сюди молодим, і "
        "кажуть, що він так і не поїхав. Дім його стоїть до сьогодні, але не для всіх; це є "
        "окрема історія."
    ),
    "Bulgarian": (
        "Складът отваря в седем часа, а пекарната до него един час по-късно. Който иска да види "
        "старата мелница, трябва да върви край реката. Построил я е инженер, който дошъл тук "
        "млад, и казват, че не си е тръгнал никога. Къщата му още стои, но е затворена за "
        "посетители."
    ),
    "Greek": (
        "Η αποθήκη ανοίγει στις επτά και ο φούρνος δίπλα της μία ώρα αργότερα. Όποιος θέλει να "
        "δει τον παλιό μύλο πρέπει να περπατήσει κατά μήκος του ποταμού. Τον έχτισε ένας "
        "μηχανικός που ήρθε εδώ νέος και δεν έφυγε ποτέ. Το σπίτι του στέκει ακόμη, αλλά είναι "
        "κλειστό για το κοινό."
    ),
    "Hebrew": (
        "המחסן נפתח בשעה שבע, והמאפייה שלידו שעה אחת אחר כך. מי שרוצה לראות את הטחנה הישנה צריך "
        "ללכת לאורך הנהר. בנה אותה מהנדס שהגיע לכאן כאשר היה צעיר, ואומרים כי הוא לא עזב מאז. "
        "הבית של המהנדס עומד גם היום, אבל הוא סגור. אם יש זמן, אפשר לבקר עם כל הילדים."
    ),
    "Arabic": (
        "يفتح المخزن أبوابه في الساعة السابعة والمخبز الذي بجانبه بعد ساعة. من أراد أن يرى "
        "الطاحونة القديمة فعليه أن يمشي مع النهر إلى آخر الطريق. بناها مهندس جاء إلى هنا شابا، "
        "ويقال إن هذا الرجل لم يرحل عن المدينة. ما زال البيت قائما، لكن كل الغرف مغلقة على ما "
        "يبدو."
    ),
    "Thai": (
        "โกดังเปิดเวลาเจ็ดโมงเช้า และร้านขนมปังที่อยู่ข้างกันเปิดหลังจากนั้นหนึ่งชั่วโมง "
        "ผู้ที่อยากเห็นโรงสีเก่าต้องเดินไปตามแม่น้ำ วิศวกรคนหนึ่งเป็นผู้สร้าง "
        "เขามาที่นี่ตั้งแต่ยังหนุ่มและไม่ได้จากไปอีก บ้านของเขายังอยู่ในเมือง "
        "แต่ปิดไม่ให้คนเข้าชม"
    ),
    "Japanese": (
        "倉庫は七時に開き、隣のパン屋はその一時間後に開きます。古い水車小屋を見たい人は川に沿って"
        "歩かなければなりません。それは若いころにここへ来た技師が建てたもので、彼は二度と去らなか"
        "ったそうです。家は今も残っていますが、閉まっています。"
    ),
    "Chinese": (
        "仓库七点开门,旁边的面包店一个小时以后开门。想看老磨坊的人要沿着河走。那是一个年轻时来到"
        "这里的工程师建的,人们说他再也没有离开。他的房子还在,但是不开放。下个月这里会有一个为孩子"
        "们办的展览,大家都可以来。"
    ),
    "Chinese, traditional": (
        "倉庫七點開門,旁邊的麵包店一個小時以後開門。想看老磨坊的人要沿著河走。那是一個年輕時來到"
        "這裡的工程師建的,人們說他再也沒有離開。他的房子還在,但是不開放。下個月這裡會有一個為孩子"
        "們辦的展覽。"
    ),
    "Korean": (
        "창고는 일곱 시에 열고, 옆에 있는 빵집은 한 시간 뒤에 엽니다. 오래된 방앗간을 보려는 "
        "사람은 강을 따라 걸어가야 합니다. 젊은 시절에 이곳으로 온 기사가 지은 것으로, 그는 "
        "다시는 떠나지 않았다고 합니다. 그의 집은 아직 남아 있지만 닫혀 있습니다."
    ),
}
_WEST = "cp1252 cp850 mac_roman iso8859_15"
_MIDDLE = "cp1250 iso8859_2 cp852 mac_latin2"
ENCODINGS = {
    "English": _WEST + " cp437",
    "German": _WEST + " cp437",
    "French": _WEST,
    "Spanish": _WEST + " cp437",
    "Portuguese": _WEST,
    "Italian": _WEST + " cp437",
    "Danish": _WEST,
    "Swedish": _WEST + " cp437",
    "Finnish": _WEST + " cp437",
    "Polish": _MIDDLE,
    "Czech": _MIDDLE,
    "Slovak": _MIDDLE,
    "Hungarian": _MIDDLE,
    "Romanian": "cp1250 iso8859_2 cp852",
    "Croatian": "cp1250 iso8859_2 cp852 mac_croatian",
    "Slovene": "cp1250 iso8859_2 cp852",
    "Turkish": "cp1254 iso8859_9 cp857 mac_turkish",
    "Latvian": "cp1257 iso8859_13 cp775",
    "Lithuanian": "cp1257 iso8859_13 cp775",
    "Estonian": "cp1257 iso8859_15",
    "Russian": "cp1251 koi8_r iso8859_5 cp866 mac_cyrillic cp855",
    "Ukrainian": "cp1251 koi8_u iso8859_5 mac_cyrillic",
    "Bulgarian": "cp1251 iso8859_5 cp866 mac_cyrillic",
    "Greek": "cp1253 iso8859_7 cp737 mac_greek",
    "Hebrew": "cp1255 iso8859_8 cp862",
    "Arabic": "cp1256 iso8859_6",
    "Thai": "cp874 tis_620",
    "Japanese": "cp932 shift_jis euc_jp",
    "Chinese": "gb18030 gbk gb2312",
    "Chinese, traditional": "big5 cp950 gb18030",
    "Korean": "euc_kr cp949",
}
